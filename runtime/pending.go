package runtime

import (
	"context"
	"fmt"
	"net/netip"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
)

// Pending is a raw connection (Options.Raw), made with the connection manager. Its handshake waits
// for Connect. Before Connect the owner can post receives. A peer that sends as soon as it is
// connected, and does not tolerate RNR, needs these receives. The dialing end and the accepting end
// can both use it:
//
//	        PrepareDial              Connect
//	(none) ───────────────> pending ─────────> a Conn
//	        PrepareAccept      │ Connect failed, the peer has given up, the device is gone
//	                           │ Close          v
//	                           └─────────────> gone
//
// All methods may be called from any goroutine. The caller closes the Pending. If Connect has
// returned the Conn, the caller closes the Conn instead.
//
// Implements: rdma_create_ep, rdma_get_request.
type Pending struct {
	unconnected
	peer netip.AddrPort
}

// PrepareDial prepares a connection like DialOptions with Options.Raw set, but sends no connection
// request: the peer does not hear of it. It waits until the route to the peer is resolved or ctx
// ends, at most Config.ConnectTimeout. Errors as Dial.
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

// PrepareAccept is Accept for a raw listener, but does not answer the peer. It waits for a peer's
// request and prepares a connection for it. That peer then waits for Connect, until the peer's own
// ConnectTimeout. If ctx ends while a connection is being prepared, the request is refused.
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

// Connect continues the handshake: it sends the connection request, or accepts the peer's request.
// It waits for the outcome until ctx ends, at most Config.ConnectTimeout. If it succeeds, the
// caller uses the Conn in place of p. Receives posted before Connect are at the device before the
// peer can send. If the handshake fails, Connect closes p. Connect may be called only one time.
//
// Errors as Dial; ErrClosed for the second call, or after Close. If the peer has withdrawn its
// request, the error is ErrUnreachable or a *RejectError; a server then goes on with the next
// request.
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
		f.Discard() // if the connection is established after all, disposeConn closes it
	}
	c.Abort()
	return nil, fmt.Errorf("connecting to %v: %w", p.peer, asked.Cause(ctx, err))
}

// The method held delivers a prepared connection to the PrepareDial or PrepareAccept that waits for
// it. For PrepareAccept it clears c.from: from here on the connection reports nothing to a
// listener, like a dialed one. Only the holder of the turn (the goroutine that runs the reactor)
// calls the functions from here to goOn. For the methods of Conn, the reactor is the connection's;
// for the others, it is the listener's.
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

// The method held is the part of Conn.held that needs the listener's turn. It delivers the
// connection to PrepareAccept, and takes the request out of the backlog.
func (r *request) held() {
	l := r.l
	if r.stage == stageBegun {
		r.early.Settle(r.conn, nil) // if PrepareAccept has given up, disposeConn closes the connection
	} else { // the request was evicted or the listener stopped, which closes the connection
		l.passOver(r.early, ErrConnClosed)
	}
	l.backlog.remove(&r.entry)
	l.startHandshakes()
}

// passOver handles the failure of a request that was prepared for s, a call of PrepareAccept. If
// the peer caused the failure, s waits for the next request, before all other calls. Otherwise s
// gets the error err. If the listener has stopped, s gets the listener's cause instead.
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

// goOn starts the handshake of a connection that the method held has delivered. The outcome settles
// the promise p.
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

// errUsed is the error of Connect after an earlier Connect or Close.
var errUsed = fmt.Errorf("%w: it was connected or closed before", ErrClosed)

// unconnected is the common part of Pending and Prepared: a raw connection with a queue pair that
// is not connected yet.
type unconnected struct {
	c *Conn
	// used is set at the beginning of the first Connect or Close. A Connect that finds it set
	// returns errUsed. It publishes no other memory.
	used uatomic.Bool
	// returned is set before Connect returns the Conn to the caller, which then owns it. Close
	// reads it. It publishes no other memory.
	returned uatomic.Bool
}

// PostRecv is Conn.PostRecv for the first messages of the peer. Receives posted before Connect are
// at the device before the peer can send. A message that finds no receive is lost on UC. On RC the
// peer's device sends it again, as often as the peer's RNR retry count says, which may be zero.
//
// Implements: ibv_post_recv.
func (u *unconnected) PostRecv(locals ...Slice) (Future, error) { return u.c.PostRecv(locals...) }

// Close closes a connection that Connect has not returned. After a successful Connect it does
// nothing. It waits as Conn.Close does, also after a failed Connect. If a Connect is in progress,
// it fails or returns a connection that is being closed. Close is idempotent.
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
