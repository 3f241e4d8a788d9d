package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// listenerClosed is what is said with rejectClosed.
const listenerClosed = "the listener is closed"

// Listener accepts connections at an address of the runtime's device. All
// methods may be called from any goroutine.
//
// It connects to whoever asks before Accept is called, as far as Options.Backlog goes:
// Dial succeeds, and what the peer sends waits in the receives of the connection, within
// its credits. Accept gives the connection that was established first. One that
// its peer has closed before anybody waited for it is given too if there are messages to
// receive, as a socket is; without any it is passed over. The backlog counts requests, handshakes
// and established connections alike. When it is full, the oldest unfinished one of the
// address that has most of them gives way to a newcomer; established ones never do,
// and when there is nothing else the newcomer is refused. So a peer that asks and then
// says nothing keeps no other address out. See backlog for the limits.
//
// A raw listener begins a handshake only when somebody accepts: until then requests wait,
// and their peers too. Receives that must be there before the peer can send are posted
// between PrepareAccept and Pending.Connect.
type Listener struct {
	rt   *Runtime
	sh   *shard
	opts Options        // with the runtime's; PrivateData is ours
	addr netip.AddrPort // written before anybody has the listener

	// The holder's.
	id       verbs.CMID
	backlog  backlog
	waiters  acceptWaiters  // of Accept
	early    acceptWaiters  // of PrepareAccept
	timer    *reactor.Timer // asks the backlog again
	why      error          // it takes no more requests; nil while it does
	gone     chan struct{}
	closeErr error
}

// Listen listens at "host:port" with the runtime's options. An empty host is
// the device's address, port 0 is chosen (see Addr).
//
// Errors: ErrAddress, ErrConfig, the device's (EADDRINUSE).
func (rt *Runtime) Listen(addr string) (*Listener, error) { return rt.ListenOptions(addr, Options{}) }

// ListenOptions is Listen with options; what they leave open is the runtime's.
func (rt *Runtime) ListenOptions(addr string, o Options) (*Listener, error) {
	ctx := context.Background()
	at, err := rt.resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	if o, err = rt.inherit(o); err != nil {
		return nil, err
	}
	if err := o.checkPrivate("an acceptance", verbs.MaxPrivateAccept); err != nil {
		return nil, err
	}
	if err := rt.enter(); err != nil {
		return nil, err
	}
	defer rt.leave()
	if err := rt.fits(o); err != nil {
		return nil, err
	}
	l := &Listener{rt: rt, sh: rt.shards[0], opts: o, backlog: newBacklog(o.Backlog), gone: make(chan struct{})}
	rt.mu.Lock()
	rt.listeners[l] = struct{}{}
	rt.mu.Unlock()
	var lerr error
	if err := l.sh.r.Do(ctx, func() { lerr = l.listen(at) }); err != nil {
		lerr = err
	}
	if lerr != nil {
		l.forget()
		return nil, fmt.Errorf("listening at %s: %w", addr, rt.asRemoved(lerr))
	}
	return l, nil
}

func (l *Listener) forget() {
	l.rt.mu.Lock()
	defer l.rt.mu.Unlock()
	delete(l.rt.listeners, l)
}

// listen starts; holder only.
func (l *Listener) listen(at netip.AddrPort) error {
	id, err := l.sh.cm.CreateID(verbs.PSTCP, 0)
	if err != nil {
		return err
	}
	if err = id.Bind(at); err == nil {
		// Those that are not answered count at the device: as many as are kept here, as many
		// again that were not taken yet, and those that are being refused.
		err = id.Listen(2*l.opts.Backlog + maxRejections)
	}
	if err != nil {
		l.sh.closeID(id, nil)
		return err
	}
	l.id, l.addr = id, id.LocalAddr()
	l.sh.targets[id] = l
	return nil
}

// Addr is where the listener listens.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept waits for a connection. A handshake that fails is passed over. When ctx ends
// first no connection is lost: it is left to others.
//
// Errors: ErrClosed after Close; ErrDeviceRemoved; the context's; what keeps a connection from
// being prepared here (memory, the configuration, no room in the reactor).
func (l *Listener) Accept(ctx context.Context) (*Conn, error) { return l.wait(ctx, &l.waiters) }

func (l *Listener) wait(ctx context.Context, line *acceptWaiters) (*Conn, error) {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return nil, err
	}
	for {
		f, err := l.addWaiter(line)
		if err != nil {
			return nil, err
		}
		c, err := f.Await(asked)
		switch {
		case err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrTooMany) || errors.Is(err, ErrConfig) || errors.Is(err, verbs.ErrDeviceRemoved) || errors.Is(err, errPrepare):
			return c, err
		case f.Valid(): // ctx has ended
			f.Discard()
			return nil, asked.Why(ctx, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}

// AcceptAsync returns the future of the next connection; they go to those who asked in
// the order of asking. A handshake that fails for a reason on this side (memory, the
// device) settles it with the error: accept again. One that fails for the peer's is passed
// over. The connection of a future that is discarded is given to the next who asks.
//
// Errors: ErrClosed after Runtime.Close; ErrDeviceRemoved.
func (l *Listener) AcceptAsync() (futures.Future[*Conn], error) { return l.addWaiter(&l.waiters) }

func (l *Listener) addWaiter(line *acceptWaiters) (f futures.Future[*Conn], err error) {
	if err := l.rt.enter(); err != nil {
		return f, err
	}
	defer l.rt.leave()
	promise, f := l.rt.conns.New(nil)
	l.sh.r.Defer(func() {
		if l.why == nil && l.rt.gone.Load() {
			l.stop(verbs.ErrDeviceRemoved)
		}
		if l.why != nil {
			promise.Settle(nil, l.why)
			return
		}
		line.all = append(line.all, acceptWaiter{promise})
		line.served(0)
		l.match()
	})
	return f, nil
}

// acceptWaiters are those who wait for a connection, oldest first. The holder's.
type acceptWaiters struct {
	all    []acceptWaiter
	pruned int // left by the last look at them (served)
}

// served takes the first n, which were served, and some of those given up.
func (s *acceptWaiters) served(n int) { s.all = served(s.all, n, &s.pruned) }

// wanted is how many wait.
func (s *acceptWaiters) wanted() int {
	s.all = wanted(s.all)
	return len(s.all)
}

// next takes the first that is wanted; false if there is none.
func (s *acceptWaiters) next() (first acceptWaiter, ok bool) {
	for len(s.all) > 0 {
		first = s.all[0]
		if s.served(1); first.wanted() {
			return first, true
		}
		first.giveUp()
	}
	return acceptWaiter{}, false
}

// acceptWaiter is the promise of one Accept.
type acceptWaiter struct{ futures.Promise[*Conn] }

// wanted implements waiter.
func (s acceptWaiter) wanted() bool { return s.Wanted() }

// giveUp implements waiter.
func (s acceptWaiter) giveUp() { s.Settle(nil, futures.ErrDiscarded) }

// onCM implements cmTarget.
func (l *Listener) onCM(ev *verbs.CMEvent) {
	if ev.Type == verbs.CMDeviceRemoval {
		l.rt.deviceGone()
		l.stop(verbs.ErrDeviceRemoved)
		return
	}
	if ev.Type != verbs.CMConnectRequest {
		return
	}
	if _, err := readHello(ev.Conn.PrivateData, l.opts); err != nil {
		code := proto.RejectProtocol
		if errors.Is(err, ErrMode) {
			code = proto.RejectMode
		}
		l.sh.rejectLater(ev.ID, func(id verbs.CMID) { _ = id.Reject(proto.EncodeReject(code, err.Error())) }) // worded off the turn
		return
	}
	r := &request{l: l, id: ev.ID, private: ev.Conn.PrivateData}
	r.req = r
	out, ok := l.backlog.admit(&r.entry, ev.ID.PeerAddr().Addr())
	if !ok {
		l.sh.reject(r.id, proto.RejectResources, fmt.Sprintf("%d connections are waiting to be accepted", l.opts.Backlog))
		return
	}
	if out != nil {
		out.req.giveWay("others have come since, and there is room for " + strconv.Itoa(l.opts.Backlog))
	}
	l.sh.targets[r.id] = r
	l.pump()
}

// pump begins what handshakes may begin, and ends those that give way to them.
func (l *Listener) pump() {
	for l.why == nil {
		begin, out, wake := l.backlog.next(l.rt.cfg.now(), l.room())
		switch {
		case begin != nil:
			begin.req.begin()
		case out != nil:
			out.req.giveWay(fmt.Sprintf("others wait, and it was not finished within %v", handshakePatience))
		default:
			l.sh.r.StopTimer(l.timer)
			l.timer = nil
			if !wake.IsZero() {
				l.timer = l.sh.r.After(wake.Sub(l.rt.cfg.now()), l.pump)
			}
			return
		}
	}
}

// room is how many more handshakes may begin: a raw one needs somebody who accepts it.
func (l *Listener) room() int {
	if !l.opts.Raw {
		return l.opts.Backlog
	}
	return max(l.waiters.wanted()-len(l.backlog.ready), 0) + l.early.wanted() - l.backlog.begun
}

// match gives established connections to those who accept, and begins what can begin
// now.
func (l *Listener) match() {
	for r := l.first(); r != nil; r = l.first() {
		s, ok := l.waiters.next()
		if !ok {
			break
		}
		l.backlog.remove(&r.entry)
		r.given.Store(true)
		s.Settle(r.conn, nil) // given up only just now: returnCredits
	}
	l.pump()
}

// first is the request that has been ready longest and is worth accepting.
func (l *Listener) first() *request {
	for _, p := range l.backlog.ready {
		if r := p.req; r.worth || r.conn.cause.Load() == nil {
			return r
		}
	}
	return nil
}

// failed tells the one who has waited longest that a connection failed for a reason on
// this side; one that failed for the peer's is passed over.
func (l *Listener) failed(err error) {
	if theirs(err) {
		return
	}
	for _, line := range []*acceptWaiters{&l.waiters, &l.early} {
		for s, ok := line.next(); ok; s, ok = line.next() {
			if s.Settle(nil, err) {
				return
			}
		}
	}
}

// Close stops listening, refuses who waits, closes connections that nobody has accepted
// and ends pending Accepts with ErrClosed. Accepted connections live on. It is idempotent. It waits for
// nothing but its reactor: when ctx ends, it gives that some seconds more
// before ErrReactorBusy.
func (l *Listener) Close(ctx context.Context) error {
	if ctx == nil {
		return ErrNilContext
	}
	done := ctx.Done()
	l.end()
	select {
	case <-l.gone:
		return l.closeErr
	case <-done:
	}
	if !waitBound(l.gone, closeBound) {
		return fmt.Errorf("closing the listener at %v: %w within %v", l.addr, ErrReactorBusy, closeBound)
	}
	return l.closeErr
}

// end starts the end.
func (l *Listener) end() { l.sh.r.Defer(func() { l.stop(ErrClosed) }) }

// stop ends listening, once: who waits gets the cause. Holder only.
func (l *Listener) stop(cause error) {
	if l.why != nil {
		return
	}
	l.why = cause
	l.sh.r.StopTimer(l.timer)
	for _, p := range slices.Concat(l.backlog.unfinished, l.backlog.ready) {
		if p.stage == stageWaiting {
			l.backlog.remove(p)
			l.sh.reject(p.req.id, proto.RejectClosed, listenerClosed)
			continue
		}
		l.backlog.leave(p)
		p.req.end()
	}
	for _, s := range slices.Concat(l.waiters.all, l.early.all) {
		s.Settle(nil, cause)
	}
	l.waiters.all, l.early.all = nil, nil
	l.sh.closeID(l.id, func(err error) {
		l.closeErr = err
		l.forget()
		close(l.gone)
	})
}
