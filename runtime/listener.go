package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// listenerClosed is what is said with rejectClosed.
const listenerClosed = "the listener is closed"

// Listener accepts connections at an address of the runtime's device. All
// methods may be called from any goroutine.
type Listener struct {
	rt   *Runtime
	sh   *shard
	opts Options        // with the runtime's; PrivateData is ours
	addr netip.AddrPort // written before anybody has the listener

	// The holder's.
	id       verbs.CMID
	requests []*request // nobody accepts them yet, oldest first
	seats    []*Conn    // prepared by Accept, waiting for a request
	why      error      // it takes no more requests; nil while it does
	gone     chan struct{}
	closeErr error
}

// request is a peer that wants in. Until it is seated it gets the events of
// its identifier: the peer may give up. A device of the kernel does not tell: it
// keeps the events of a request back until it is accepted, and then accepting fails
// (Linux 6.12 drivers/infiniband/core/ucma.c, ucma_event_handler). So Accept passes
// failures over, and no more than DefaultBacklog requests are kept.
type request struct {
	l       *Listener
	id      verbs.CMID
	private []byte
}

// onCM implements cmTarget.
func (r *request) onCM(ev *verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMRejected, verbs.CMDisconnected, verbs.CMConnectError, verbs.CMUnreachable, verbs.CMDeviceRemoval:
		if i := slices.Index(r.l.requests, r); i >= 0 {
			r.l.requests = slices.Delete(r.l.requests, i, i+1)
			r.l.sh.closeID(r.id, nil)
		}
	}
}

// Listen listens at "host:port" with the runtime's options. An empty host is
// the device's address, port 0 is chosen (see Addr).
//
// Errors: ErrAddress, the device's (EADDRINUSE).
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
	l := &Listener{rt: rt, sh: rt.shards[0], opts: o, gone: make(chan struct{})}
	rt.mu.Lock()
	rt.listeners[l] = struct{}{}
	rt.mu.Unlock()
	var lerr error
	if err := l.sh.r.Do(ctx, func() { lerr = l.listen(at) }); err != nil {
		lerr = err
	}
	if lerr != nil {
		l.forget()
		return nil, fmt.Errorf("listening at %s: %w", addr, rt.blame(lerr))
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
		err = id.Listen(DefaultBacklog)
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

// Accept waits for a connection. A request that fails half-way (its peer gave
// up, or is hostile) is passed over. When ctx ends first, a connection that is
// just being made is closed; later ones are left to others.
//
// Errors: ErrClosed after Close; verbs.ErrDeviceRemoved; the context's; what keeps a connection from
// being prepared here (memory, the configuration, no room in the reactor).
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return nil, err
	}
	for {
		seat, f, err := l.seat()
		if err != nil {
			return nil, err
		}
		c, err := f.Await(asked)
		switch {
		case err == nil || errors.Is(err, ErrClosed) || errors.Is(err, reactor.ErrTooMany) || errors.Is(err, verbs.ErrDeviceRemoved):
			return c, err
		case f.Valid(): // ctx has ended
			f.Discard()
			l.sh.r.Defer(func() { l.withdraw(seat) })
			return nil, asked.Why(ctx, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}

// AcceptAsync prepares a connection for the next request and returns its
// future. A request that fails half-way settles it with the error; accept
// again. A future that is discarded takes no request.
func (l *Listener) AcceptAsync() (futures.Future[*Conn], error) {
	_, f, err := l.seat()
	return f, err
}

func (l *Listener) seat() (c *Conn, f futures.Future[*Conn], err error) {
	if c, err = l.rt.newConn(l.opts); err != nil {
		return nil, f, err
	}
	c.promise, f = l.rt.conns.New(nil)
	l.sh.r.Defer(func() {
		if l.why == nil && l.rt.gone.Load() {
			l.stop(verbs.ErrDeviceRemoved)
		}
		if l.why != nil {
			c.unseat(l.why)
			return
		}
		l.seats = append(l.seats, c)
		l.match()
	})
	return c, f, nil
}

// withdraw takes back a seat that nobody waits for any more, unless it has a
// request already.
func (l *Listener) withdraw(c *Conn) {
	if i := slices.Index(l.seats, c); i >= 0 {
		l.seats = slices.Delete(l.seats, i, i+1)
		c.unseat(ErrClosed)
	}
}

// unseat ends a connection that got no request.
func (c *Conn) unseat(err error) {
	c.promise.Settle(nil, c.abandon(err))
}

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
		code := rejectProtocol
		if errors.Is(err, ErrMode) {
			code = rejectMode
		}
		l.sh.dismiss(ev.ID, func(id verbs.CMID) { _ = id.Reject(encodeReject(code, err.Error())) }) // worded off the turn
		return
	}
	if len(l.requests) == DefaultBacklog { // the oldest is the likeliest to have given up
		oldest := l.requests[0]
		l.requests = slices.Delete(l.requests, 0, 1)
		l.sh.reject(oldest.id, rejectResources, fmt.Sprintf("%d newer requests are waiting to be accepted", DefaultBacklog))
	}
	r := &request{l, ev.ID, ev.Conn.PrivateData}
	l.requests = append(l.requests, r)
	l.sh.targets[ev.ID] = r
	l.match()
}

// match seats requests.
func (l *Listener) match() {
	for len(l.requests) > 0 && len(l.seats) > 0 {
		c := l.seats[0]
		l.seats = slices.Delete(l.seats, 0, 1)
		if !c.promise.Wanted() {
			c.unseat(futures.ErrDiscarded)
			continue
		}
		req := l.requests[0]
		l.requests = slices.Delete(l.requests, 0, 1)
		delete(l.sh.targets, req.id) // the connection's from here on
		if c.sh == l.sh {
			c.accept(req)
			continue
		}
		c.sh.r.Defer(func() { c.accept(req) })
	}
}

// accept answers a request, on the turn of the connection's reactor.
func (c *Conn) accept(req *request) {
	if !c.begin() {
		c.sh.reject(req.id, rejectClosed, listenerClosed)
		return
	}
	c.remote = req.id.PeerAddr()
	err := c.own(req.id)
	if err == nil {
		err = req.id.Migrate(c.sh.cm)
	}
	if err == nil {
		err = c.meet(req.private)
	}
	if err == nil {
		err = c.setup()
	}
	if err == nil {
		err = req.id.Accept(c.param())
	}
	if err != nil {
		_ = req.id.Reject(encodeReject(rejectResources, err.Error())) // if that fails, the peer times out
		c.giveUp(err)
	}
}

// Close stops listening, refuses who waits and ends pending Accepts with
// ErrClosed. Accepted connections live on. It is idempotent. It waits for
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
	for _, req := range l.requests {
		l.sh.reject(req.id, rejectClosed, listenerClosed)
	}
	for _, c := range l.seats {
		c.unseat(cause)
	}
	l.requests, l.seats = nil, nil
	l.sh.closeID(l.id, func(err error) {
		l.closeErr = err
		l.forget()
		close(l.gone)
	})
}
