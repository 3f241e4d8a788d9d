package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// listenerClosed is the text of a rejection with proto.RejectClosed.
const listenerClosed = "the listener is closed"

// Listener accepts connections at an address of the runtime's device. All methods may be
// called from any goroutine.
//
// A managed listener completes handshakes before Accept is called. The peer's Dial then succeeds,
// and messages of the peer wait in the connection's receives. Accept returns the connection that
// was established first. As with sockets, the peer may already have closed this connection. If
// there are messages to receive, Accept returns the closed connection, and otherwise skips it.
//
// The backlog limits the number of requests, handshakes and established connections together. If
// the backlog is full, a new request evicts a waiting request or a handshake of the address that
// has the most of these. So a peer that sends requests and does not finish its handshakes cannot
// lock out other addresses. Established connections are never evicted. If established connections
// fill the backlog, the listener refuses a new request. See Options.Backlog for the limits.
//
// A raw listener begins a handshake only when a call of Accept, AcceptAsync or PrepareAccept waits
// for a connection. Until then the peer's request is not answered, and the peer's Dial waits. If a peer
// does not answer within 10 ms, the handshake of the next request begins for the same call of Accept or AcceptAsync,
// so a silent peer cannot lock out others; if both answer, the next call gets the second connection. To
// post receives before the peer can send, post them between PrepareAccept and Pending.Connect. Pending.Connect
// waits for a silent peer. While a request waits and no call does, these waits last 2 s in total, 10 ms each and a tenth
// of the time at most. If the program calls Connect beside the next PrepareAccept, silent peers cause no delay.
type Listener struct {
	rt   *Runtime
	sh   *shard
	opts Options        // a result of Runtime.inherit
	addr netip.AddrPort // written before the user gets the Listener

	// Only the holder of the turn of sh.r (the goroutine that runs the reactor) uses the fields below.
	listening      listening
	backlog        backlog
	waiters        acceptWaiters  // calls of Accept and AcceptAsync
	prepareWaiters acceptWaiters  // calls of PrepareAccept
	connecting     []turnWait     // calls of Pending.Connect
	patience       turnPatience   // with their peers
	delayed        time.Time      // since when requests wait and no call does, while connecting is not empty; otherwise zero
	timer          *reactor.Timer // calls startHandshakes when a handshake may be evicted, or a wait given up
	untold         error          // the newest failure for which no call waited; the next call gets it
	cause          error          // why the listener has stopped; nil while it accepts requests
	onRequest      func()         // set by OnRequest
	gone           chan struct{}  // closed when the identifier is closed
	closeErr       error          // the result of Close; written before gone is closed
}

// Listen listens at "host:port" with the runtime's options. An empty host means all addresses of the
// device, also those that it gets later, at one port; so listeners of two devices can have the same port
// (at the unspecified address, 0.0.0.0 or ::, the first would keep the other out). If the device has no
// address, Listen fails, and the error names the missing part. On a device that has all addresses of this
// machine (verbs.DeviceInfo.AnyAddr), an empty host means all addresses of the machine. The default device
// of the software RNIC is such a device; it has no link-local addresses of IPv6. If the port is 0, the system chooses a port (see Addr).
//
// Errors: ErrAddress, ErrConfig, ErrClosed, errors of the device (for example EADDRINUSE).
func (rt *Runtime) Listen(addr string) (*Listener, error) { return rt.ListenOptions(addr, Options{}) }

// ListenOptions is Listen with the options o. Each zero field of o is replaced by the runtime's
// option (Config.Conn).
func (rt *Runtime) ListenOptions(addr string, o Options) (*Listener, error) {
	ctx := context.Background()
	at, err := rt.resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	all := rt.allOf(addr)
	if strings.HasPrefix(addr, ":") && rt.dev.Device().AnyAddr {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())
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
	// The device's backlog counts all unanswered requests. At most Options.Backlog of these requests are in
	// l.backlog, and about maxRejections wait to be rejected. The remaining Options.Backlog places are for
	// requests whose events takeCM has not taken yet.
	l.listening = listening{sh: l.sh, target: l, space: verbs.PSTCP, backlog: 2*o.Backlog + maxRejections, tos: o.TOS, all: all,
		ids: map[netip.Addr]verbs.CMID{}}
	rt.mu.Lock()
	rt.listeners[l] = struct{}{}
	rt.mu.Unlock()
	rt.addrMu.Lock()
	defer rt.addrMu.Unlock()
	ips, lerr := rt.listenAt(all, at.Addr())
	if lerr == nil {
		if err := l.sh.r.Do(ctx, func() { lerr = l.listen(ips, at.Port()) }); err != nil {
			lerr = err
		}
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

// OnRequest has fn called for each request that arrives from now on, when it begins to wait for a
// handshake. It is for programs that call TryPrepareAccept. The holder of the turn calls fn, so fn must
// not block. A later call replaces fn; nil ends the calls. OnRequest waits for the listener's reactor.
func (l *Listener) OnRequest(fn func()) error {
	return l.sh.r.Do(context.Background(), func() { l.onRequest = fn })
}

// Addr returns the address of the listener; of several, one of those that it has had from the beginning. If the listener is at all addresses of the machine,
// Addr returns the unspecified IP address and the port. Dial replaces the unspecified IP address by
// the device's address.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept waits for a connection. It skips handshakes that fail. If ctx ends first, no connection is
// lost: the next Accept gets the connection.
//
// Errors: ErrClosed after Close; ErrDeviceRemoved; the error of the context; the reason why the
// listener could not prepare a connection (no memory, the configuration, no room in the reactor, no
// queue pair, a completion queue that has failed). If there was such a reason while no call waited, the
// next call returns the newest.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	return l.wait(ctx, &l.waiters, acceptWaiter{})
}

// wait waits in the line for a connection. The argument how has the fields of the wait other than its
// promise.
func (l *Listener) wait(ctx context.Context, line *acceptWaiters, how acceptWaiter) (*Conn, error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return nil, err
	}
	for {
		f, err := l.addWaiter(line, how)
		if err != nil {
			return nil, err
		}
		c, err := f.Await(asked)
		switch {
		case err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrTooMany) || errors.Is(err, ErrConfig) || errors.Is(err, verbs.ErrDeviceRemoved) || errors.Is(err, errPrepare) || errors.Is(err, ErrNoRequest) || errors.Is(err, reactor.ErrOverrun):
			return c, err
		case f.Valid(): // ctx has ended
			f.Discard()
			return nil, asked.Cause(ctx, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}

// AcceptAsync returns the future of the next connection. If several futures wait, the oldest future
// gets the next connection. If a handshake fails for a local reason (memory, the device), the
// oldest future fails with the error, or the next one if none waits; the caller may call
// AcceptAsync again. If a handshake fails because of the peer, no future fails. If a future is
// discarded, its connection goes to the next future.
//
// Errors of the call: ErrClosed after Runtime.Close; ErrDeviceRemoved. If the listener is closed,
// the future fails with ErrClosed.
func (l *Listener) AcceptAsync() (futures.Future[*Conn], error) {
	return l.addWaiter(&l.waiters, acceptWaiter{})
}

func (l *Listener) addWaiter(line *acceptWaiters, how acceptWaiter) (f futures.Future[*Conn], err error) {
	if err := l.rt.enter(); err != nil {
		return f, err
	}
	defer l.rt.leave()
	promise, f := l.rt.conns.New(nil)
	l.sh.r.Defer(func() {
		if l.cause == nil && l.rt.gone.Load() {
			l.stop(verbs.ErrDeviceRemoved)
		}
		if l.cause != nil {
			promise.Settle(nil, l.cause)
			return
		}
		how.Promise = promise
		line.all = append(line.all, how)
		line.served(0)
		if err := l.untold; err != nil {
			l.untold = nil
			l.failed(err)
		}
		l.match()
	})
	return f, nil
}

// acceptWaiters are the calls that wait for a connection, oldest first. Only the holder of the
// listener's turn uses them.
type acceptWaiters struct {
	all    []acceptWaiter
	pruned int // shortest length of all since the last pruning (conn_recv_waits.go)
}

// served(n) removes the first n waits, which have got their results. It may also remove waits whose
// future was discarded.
func (s *acceptWaiters) served(n int) { s.all = served(s.all, n, &s.pruned) }

// wanted() removes all waits whose future was discarded, and returns the number of remaining waits.
func (s *acceptWaiters) wanted() int {
	s.all = wanted(s.all)
	return len(s.all)
}

// next() removes and returns the oldest wait whose future was not discarded. If there is none,
// next() returns false. It also removes the older waits, whose futures were discarded.
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

// acceptWaiter is one call of Accept, AcceptAsync or PrepareAccept, or of their variants.
type acceptWaiter struct {
	futures.Promise[*Conn]
	opts *Options // for the connection; nil: those of the listener
	try  bool     // the call fails with ErrNoRequest when no request is waiting
}

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
	if has := l.rt.dev.Device().Name; ev.ID.Device() != has { // an identifier bound to the unspecified address gets the requests that arrive at any device
		l.sh.reject(ev.ID, proto.RejectResources, "the request came to device "+ev.ID.Device()+", but the listener uses device "+has)
		return
	}
	hello, err := readHello(ev.Conn.PrivateData, l.opts)
	if err != nil {
		code := proto.RejectProtocol
		if errors.Is(err, ErrMode) {
			code = proto.RejectMode
		}
		l.sh.rejectLater(ev.ID, func(id verbs.CMID) { _ = id.Reject(proto.Reject{Code: code, Text: err.Error()}.Encode()) }) // err.Error() runs without the turn
		return
	}
	r := &request{l: l, id: ev.ID, private: ev.Conn.PrivateData, data: hello.User}
	r.req = r
	out, ok := l.backlog.admit(&r.entry, ev.ID.PeerAddr().Addr(), l.rt.cfg.now())
	if !ok {
		l.sh.reject(r.id, proto.RejectResources, fmt.Sprintf("%d connections are waiting to be accepted or are being established", l.opts.Backlog))
		return
	}
	if out != nil {
		out.req.evict(fmt.Sprintf("newer requests have filled the backlog of %d", l.opts.Backlog))
	}
	l.sh.targets[r.id] = r
	if l.onRequest != nil {
		l.onRequest()
	}
	l.startHandshakes()
}

// startHandshakes begins the handshakes that the backlog permits, and ends the requests that the
// backlog evicts to make room for handshakes, and waits of Pending.Connect that delay others too long. Holder only, like all methods of Listener below,
// except Close and end.
func (l *Listener) startHandshakes() {
	for l.cause == nil {
		begin, out, wake := l.backlog.next(l.rt.cfg.now(), l.calls())
		switch {
		case begin != nil:
			begin.req.begin()
		case out != nil:
			out.req.evict(fmt.Sprintf("the handshake took longer than %v, and other requests wait", handshakePatience))
		default:
			if at := l.giveWay(l.rt.cfg.now()); wake.IsZero() || !at.IsZero() && at.Before(wake) {
				wake = at
			}
			l.sh.r.StopTimer(l.timer)
			l.timer = nil
			if !wake.IsZero() {
				l.timer = l.sh.r.After(wake.Sub(l.rt.cfg.now()), l.startHandshakes)
			}
			l.endTries()
			return
		}
	}
}

// calls returns the number of calls that wait for a connection and for which none is ready: those of Accept,
// AcceptAsync and PrepareAccept. On a managed listener handshakes wait for no call.
func (l *Listener) calls() int {
	if !l.opts.Raw {
		return math.MaxInt
	}
	return max(l.waiters.wanted()-len(l.backlog.ready), 0) + l.prepareWaiters.wanted()
}

// endTries ends the calls of TryPrepareAccept if no request is waiting for them.
func (l *Listener) endTries() {
	if l.backlog.waits() {
		return
	}
	l.prepareWaiters.all = slices.DeleteFunc(l.prepareWaiters.all, func(s acceptWaiter) bool {
		if s.try {
			s.Settle(nil, ErrNoRequest)
		}
		return s.try
	})
}

// match delivers established connections to the waiting calls of Accept and AcceptAsync. Then it
// begins the handshakes for which there is room.
func (l *Listener) match() {
	for r := l.first(); r != nil; r = l.first() {
		s, ok := l.waiters.next()
		if !ok {
			break
		}
		l.backlog.remove(&r.entry)
		r.accepted.Store(true)
		s.Settle(r.conn, nil) // if the future has been discarded since next(), disposeConn calls giveBack
	}
	l.startHandshakes()
}

// first returns the oldest ready request whose connection Accept may return: the connection has not
// ended, or has messages to receive. If there is none, first returns nil.
func (l *Listener) first() *request {
	for _, p := range l.backlog.ready {
		if r := p.req; r.acceptable || r.conn.cause.Load() == nil {
			return r
		}
	}
	return nil
}

// failed handles the error err of a connection that was not accepted. If the peer caused the error,
// failed ignores it. Otherwise the oldest waiting Accept or AcceptAsync gets the error, or the
// oldest PrepareAccept if no other call waits. If none waits, the next call gets the error.
func (l *Listener) failed(err error) {
	if causedByPeer(err) {
		return
	}
	for _, line := range []*acceptWaiters{&l.waiters, &l.prepareWaiters} {
		for s, ok := line.next(); ok; s, ok = line.next() {
			if s.Settle(nil, err) {
				return
			}
		}
	}
	l.untold = err
}

// Close stops listening, refuses waiting requests, closes connections that were not accepted, and
// fails the waiting calls of Accept, AcceptAsync and PrepareAccept with ErrClosed. Accepted
// connections stay open. Close is idempotent. It waits only for the listener's reactor. If the
// listener is not closed 2.5 s after the end of ctx, Close returns ErrReactorBusy.
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

// end begins to close the listener, and does not wait. Any goroutine may call it.
func (l *Listener) end() { l.sh.r.Defer(func() { l.stop(ErrClosed) }) }

// stop closes the listener, and fails the waiting calls of Accept, AcceptAsync and PrepareAccept
// with cause. Later calls of stop do nothing.
func (l *Listener) stop(cause error) {
	if l.cause != nil {
		return
	}
	l.cause = cause
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
	for _, s := range slices.Concat(l.waiters.all, l.prepareWaiters.all) {
		s.Settle(nil, cause)
	}
	l.waiters.all, l.prepareWaiters.all = nil, nil
	// Without identifiers, no address has remained; or the method listen has failed, or has not run yet and
	// will return l.cause.
	l.listening.close(func(err error) {
		l.closeErr = err
		l.forget()
		close(l.gone)
	})
}
