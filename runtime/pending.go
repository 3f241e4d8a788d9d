package runtime

import (
	"context"
	"fmt"
	"net/netip"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
)

// Pending is a raw connection over the connection manager whose handshake its owner
// begins: until then receives can be posted, for a peer that sends as soon as it is
// connected and takes it ill when it finds none (RNR). Both sides have it:
//
//	        PrepareDial              Connect
//	(none) ───────────────> pending ─────────> a Conn
//	        PrepareAccept      │ it failed, the peer has given up, the device is gone
//	                           │ Close          v
//	                           └─────────────> gone
//
// All methods may be called from any goroutine. The caller closes it, unless it has
// become a Conn: then he closes that.
//
// Implements: rdma_create_ep, rdma_get_request.
type Pending struct {
	unconnected
	peer netip.AddrPort
}

// PrepareDial is DialOptions for a raw connection, Options.Raw being understood, up to
// where the peer would be asked: it is not yet told anything. It waits, at most
// Config.ConnectTimeout, until the way to the peer is known. Errors as Dial.
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

// PrepareAccept is Accept of a raw listener up to where the peer would be answered: it
// waits for a request, whose peer waits for Connect from then on, as long as its own
// ConnectTimeout. When ctx ends while a request is being prepared, that peer is refused.
//
// Errors: ErrMode for a listener that is not raw; otherwise as Accept.
//
// Implements: rdma_get_request.
func (l *Listener) PrepareAccept(ctx context.Context) (*Pending, error) {
	if !l.opts.Raw {
		return nil, fmt.Errorf("%w: receives of a managed connection are its own", ErrMode)
	}
	c, err := l.wait(ctx, &l.early)
	if err != nil {
		return nil, err
	}
	return &Pending{unconnected{c: c}, c.remote}, nil
}

// RemoteAddr is the peer's end: who has asked, or is to be asked.
func (p *Pending) RemoteAddr() netip.AddrPort { return p.peer }

// Connect asks the peer, or answers it, and waits for the outcome, at most
// Config.ConnectTimeout; p becomes the Conn. What was posted is at the device before the
// peer can send. Whatever fails, p is closed. It may be called once.
//
// Errors as Dial; ErrClosed for the second call, or after Close. Of a peer that asked
// and has given up since it is ErrUnreachable or a *RejectError: who serves many goes on
// with the next.
//
// Implements: rdma_connect, rdma_accept.
func (p *Pending) Connect(ctx context.Context) (*Conn, error) {
	asked, err := reactor.Ask(ctx)
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
		p.given.Store(true)
		return c, nil
	}
	if f.Valid() {
		f.Discard() // a connection that has just come is closed
	}
	c.Abort()
	return nil, fmt.Errorf("connecting to %v: %w", p.peer, asked.Why(ctx, err))
}

// held gives a connection that could begin its handshake to its owner. From here on it
// is as one that dials: nothing is told to a listener. Holder only, as all below.
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

// held is Conn.held on the listener's turn: the request is not the backlog's any more.
func (r *request) held() {
	l := r.l
	if r.stage == stageBegun {
		r.early.Settle(r.conn, nil) // given up meanwhile: disposeConn
	} else { // it gave way, and its connection is closed
		l.passOver(r.early, ErrConnClosed)
	}
	l.backlog.remove(&r.entry)
	l.pump()
}

// passOver ends the wait of s, whose request has failed, or has it wait for the next if
// that was the peer's doing.
func (l *Listener) passOver(s acceptWaiter, err error) {
	switch {
	case l.why != nil:
		s.Settle(nil, l.why)
	case theirs(err):
		l.early.all = append([]acceptWaiter{s}, l.early.all...)
	default:
		s.Settle(nil, err)
	}
}

// goOn begins the handshake of what was held; p gets the outcome.
func (c *Conn) goOn(p futures.Promise[*Conn]) {
	if c.state != connConnecting { // it has ended meanwhile
		p.Settle(nil, c.cause.Load())
		return
	}
	c.promise = p
	if !c.begin() {
		return
	}
	c.sh.r.Flush()                 // what was posted is at the device before anything can come
	if c.state != connConnecting { // the turn has found a dead queue
		return
	}
	if err := c.shake(); err != nil {
		c.giveUp(err)
	}
}

// errUsed answers the second Connect.
var errUsed = fmt.Errorf("%w: it was connected or closed before", ErrClosed)

// unconnected is a raw connection with a queue pair that its owner connects.
type unconnected struct {
	c *Conn
	// used is set by whoever connects or closes first, before he does so; who finds
	// it set does nothing. It publishes nothing.
	used uatomic.Bool
	// given is set when it has become the Conn, which is the caller's then; read by
	// Close. It publishes nothing.
	given uatomic.Bool
}

// PostRecv is Conn.PostRecv for what the peer may send first: what was posted before
// Connect is at the device when that connects. On UC a message that finds no receive is
// lost; on RC it is sent again as often as its sender was told to, which may be never.
//
// Implements: ibv_post_recv.
func (u *unconnected) PostRecv(locals ...Slice) (Future, error) { return u.c.PostRecv(locals...) }

// Close gives a connection that was never connected back; of one that was, it does
// nothing. It is idempotent, and waits as Conn.Close does, also after a Connect that
// failed; one that is under way fails.
func (u *unconnected) Close(ctx context.Context) error {
	if ctx == nil {
		return ErrNilContext
	}
	if u.given.Load() {
		return nil
	}
	u.used.Store(true)
	return u.c.Close(ctx)
}
