package runtime

import (
	"context"
	"fmt"
	"net/netip"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
)

// Pending is a raw connection of the connection manager whose handshake begins
// only with Connect. Before Connect its owner can post receives, for a peer that
// sends as soon as it is connected and does not tolerate RNR. Either end can use it:
//
//	        PrepareDial              Connect
//	(none) ───────────────> pending ─────────> a Conn
//	        PrepareAccept      │ it failed, the peer has given up, the device is gone
//	                           │ Close          v
//	                           └─────────────> gone
//
// All methods may be called from any goroutine. The caller closes the
// Pending, or, once connected, the Conn.
//
// Implements: rdma_create_ep, rdma_get_request.
type Pending struct {
	unconnected
	peer netip.AddrPort
}

// PrepareDial is DialOptions for a raw connection (it sets Options.Raw), but stops
// before the connection request: the peer is not contacted yet. It waits, at most
// Config.ConnectTimeout, until the route to the peer is resolved. Errors as Dial.
//
// Implements: rdma_resolve_addr, rdma_resolve_route, rdma_create_qp.
func (rt *Runtime) PrepareDial(ctx context.Context, addr string, o Options) (*Pending, error) {
	o.Raw = true
	c, err := rt.dialWait(ctx, addr, o, true)
	if err != nil {
		return nil, err
	}
	return &Pending{unconnected{c: c}, c.remote}, nil
}

// PrepareAccept is Accept of a raw listener, but stops before the answer to the peer: it
// waits for a request, whose peer then waits for Connect until its own ConnectTimeout.
// When ctx ends while a request is being prepared, that peer is refused.
//
// Errors: ErrMode for a listener that is not raw; otherwise as Accept.
//
// Implements: rdma_get_request.
func (l *Listener) PrepareAccept(ctx context.Context) (*Pending, error) {
	if !l.opts.Raw {
		return nil, fmt.Errorf("%w: receives of a managed connection are its own", ErrMode)
	}
	c, err := l.wait(ctx, &l.prepareWaiters)
	if err != nil {
		return nil, err
	}
	return &Pending{unconnected{c: c}, c.remote}, nil
}

// RemoteAddr returns the address of the peer.
func (p *Pending) RemoteAddr() netip.AddrPort { return p.peer }

// Connect sends the request, or the answer to the peer's, and waits for the outcome, at
// most Config.ConnectTimeout; p becomes the Conn. Receives already posted are at the
// device before the peer can send. On any failure p is closed. Connect may be called once.
//
// Errors as Dial; ErrClosed for the second call, or after Close. If a
// requesting peer has given up meanwhile, the error is ErrUnreachable or
// a *RejectError: a server continues with the next request.
//
// Implements: rdma_connect, rdma_accept.
func (p *Pending) Connect(ctx context.Context) (*Conn, error) {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return nil, err
	}
	if p.used.Swap(true) {
		return nil, errUsed
	}
	c := p.c
	promise, f := c.rt.conns.New(nil)
	c.sh.r.Defer(func() { c.goOn(promise) })
	if _, err = f.Await(asked); err == nil {
		p.returned.Store(true)
		return c, nil
	}
	if f.Valid() {
		f.Discard() // disposeConn closes a connection that is established after all
	}
	c.Abort()
	return nil, fmt.Errorf("connecting to %v: %w", p.peer, asked.Cause(ctx, err))
}

// held hands a connection that is ready for its handshake to its owner. From
// here on the connection behaves like a dialing one: it reports nothing to a
// listener. Holder only, like the functions below up to goOn.
func (c *Conn) held() {
	c.sh.r.StopTimer(c.timer)
	r := c.from
	if r == nil {
		c.promise.Settle(c, nil)
		return
	}
	c.from = nil
	r.l.sh.r.Defer(r.held)
}

// held is Conn.held on the listener's turn: the request leaves the backlog.
func (r *request) held() {
	l := r.l
	if r.stage == stageBegun {
		r.early.Settle(r.conn, nil) // if the waiter has given up, disposeConn closes it
	} else { // the request gave way, and its connection is closed
		l.passOver(r.early, ErrConnClosed)
	}
	l.backlog.remove(&r.entry)
	l.startHandshakes()
}

// passOver handles the failed request of waiter s: if the peer caused
// the failure, s waits for the next request, else s gets the error.
func (l *Listener) passOver(s acceptWaiter, err error) {
	switch {
	case l.cause != nil:
		s.Settle(nil, l.cause)
	case causedByPeer(err):
		l.prepareWaiters.all = append([]acceptWaiter{s}, l.prepareWaiters.all...)
	default:
		s.Settle(nil, err)
	}
}

// goOn starts the handshake of a held connection; p gets the outcome.
func (c *Conn) goOn(p futures.Promise[*Conn]) {
	if c.state != connConnecting { // the connection has ended in the meantime
		p.Settle(nil, c.cause.Load())
		return
	}
	c.promise = p
	if !c.begin() {
		return
	}
	c.sh.r.Flush()                 // receives are at the device before the peer can send
	if c.state != connConnecting { // Flush found a failed queue
		return
	}
	if err := c.sendHandshake(); err != nil {
		c.giveUp(err)
	}
}

// errUsed is the error of the second Connect.
var errUsed = fmt.Errorf("%w: it was connected or closed before", ErrClosed)

// unconnected is a raw connection with a queue pair that is not connected yet.
type unconnected struct {
	c *Conn
	// used is set by the first Connect or Close, before it acts; a Connect
	// that finds it set returns errUsed. It publishes nothing.
	used uatomic.Bool
	// returned is set when the Conn was returned to the caller, which then owns
	// it; read by Close. It publishes nothing.
	returned uatomic.Bool
}

// PostRecv is Conn.PostRecv for the peer's first messages: receives posted before Connect
// are at the device when it connects. On UC a message that finds no receive is lost; on
// RC it is retried as often as its sender's RNR retry count allows, which may be zero.
//
// Implements: ibv_post_recv.
func (u *unconnected) PostRecv(locals ...Slice) (Future, error) { return u.c.PostRecv(locals...) }

// Close releases a connection that was never connected; otherwise it
// does nothing. It is idempotent, and waits as Conn.Close does, also
// after a failed Connect. A concurrent Connect fails.
func (u *unconnected) Close(ctx context.Context) error {
	if ctx == nil {
		return ErrNilContext
	}
	if u.returned.Load() {
		return nil
	}
	u.used.Store(true)
	return u.c.Close(ctx)
}
