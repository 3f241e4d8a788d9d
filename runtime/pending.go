package runtime

import (
	"context"
	"fmt"
	"net/netip"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Pending is a raw connection (Options.Raw) that is not established yet. It uses the connection
// manager. The handshake waits until the owner calls Connect. Before that, the owner can post
// receives. These receives are needed if the peer sends as soon as it is connected, and does not
// retry when it finds no receive (RNR). Both the dialing end and the accepting end can use a Pending:
//
//	        PrepareDial              Connect
//	(none) ───────────────> pending ─────────> a Conn
//	        PrepareAccept      │ Connect fails, the peer gives up, the device is removed
//	                           │ Close          v
//	                           └─────────────> gone
//
// All methods may be called from any goroutine. The caller closes the Pending. If Connect returns a
// Conn, the caller closes the Conn instead.
//
// Implements: rdma_create_ep, rdma_get_request.
type Pending struct {
	unconnected
	peer netip.AddrPort
}

// PrepareDial prepares a connection like DialOptions with Options.Raw set, but sends no connection
// request: Pending.Connect sends the request. PrepareDial waits until the route to the peer is
// resolved or ctx ends, at most Config.ConnectTimeout. It returns the same errors as Dial.
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

// PrepareAccept waits for a connection request, as Accept does, and prepares a connection for the
// request. It does not answer the peer: Pending.Connect sends the answer. The peer waits for the
// answer until its own ConnectTimeout. If ctx ends while the connection is being prepared, the
// request is refused. The listener must be raw.
//
// Errors: ErrMode for a listener that is not raw; the errors of Accept.
//
// Implements: rdma_get_request.
func (l *Listener) PrepareAccept(ctx context.Context) (*Pending, error) {
	return l.prepareAccept(ctx, acceptWaiter{})
}

// PrepareAcceptOptions is PrepareAccept with options of the connection's own: each zero field of o is
// replaced by the runtime's option, and not by that of the listener. But Raw and Bare are those of the
// listener, and Admit and Backlog do not apply.
func (l *Listener) PrepareAcceptOptions(ctx context.Context, o Options) (*Pending, error) {
	opts, err := l.optionsOf(o)
	if err != nil {
		return nil, err
	}
	return l.prepareAccept(ctx, acceptWaiter{opts: opts})
}

// TryPrepareAccept is PrepareAcceptOptions that does not wait for a request: if none is waiting, or if the
// peer withdraws it, it returns ErrNoRequest. It waits until the connection is prepared; ctx ends
// that wait. See OnRequest.
func (l *Listener) TryPrepareAccept(ctx context.Context, o Options) (*Pending, error) {
	opts, err := l.optionsOf(o)
	if err != nil {
		return nil, err
	}
	return l.prepareAccept(ctx, acceptWaiter{opts: opts, try: true})
}

// optionsOf returns the options of a connection that the listener accepts with o.
func (l *Listener) optionsOf(o Options) (*Options, error) {
	o.Raw, o.Bare = l.opts.Raw, l.opts.Bare
	o, err := l.rt.inherit(o)
	if err == nil {
		err = o.checkPrivate("an acceptance", verbs.MaxPrivateAccept)
	}
	return &o, err
}

func (l *Listener) prepareAccept(ctx context.Context, how acceptWaiter) (*Pending, error) {
	if !l.opts.Raw {
		return nil, fmt.Errorf("%w: a managed connection posts its receives itself", ErrMode)
	}
	c, err := l.wait(ctx, &l.prepareWaiters, how)
	if err != nil {
		return nil, err
	}
	return &Pending{unconnected{c: c}, c.remote}, nil
}

// RemoteAddr returns the address of the peer.
func (p *Pending) RemoteAddr() netip.AddrPort { return p.peer }

// PrivateData returns the private data of the peer's request, as Conn.PrivateData does. At the dialing
// end it is nil. A program that wants no connection with this peer calls Close, which refuses the request.
func (p *Pending) PrivateData() []byte { return p.c.private }

// Connect continues the handshake: it sends the connection request, or accepts the peer's request.
// It waits for the outcome until ctx ends, at most Config.ConnectTimeout. If Connect succeeds, the
// caller uses the Conn in place of p. If Connect fails, Connect closes p. Receives posted before
// Connect are at the device before the peer can send. Connect may be called only one time.
//
// An accepting Connect whose peer does not answer ends earlier, with ErrConnectTimeout, if another request waits for
// PrepareAccept: after 1 s at first, and after less if other peers have not answered before, but not within 10 ms. The
// peer may ask again.
//
// Errors: the errors of Dial; ErrClosed for the second call, or after Close. If the peer has
// withdrawn its request, the error is ErrUnreachable or a *RejectError. A server can then call
// PrepareAccept for the next request. A dialing program whose RejectError has the reason
// verbs.RejStaleConn calls PrepareDial again, for another queue pair.
//
// Implements: rdma_connect, rdma_accept.
func (p *Pending) Connect(ctx context.Context) (*Conn, error) {
	return p.ConnectData(ctx, p.c.opts.PrivateData)
}

// ConnectData is Connect that sends private to the peer in place of Options.PrivateData. It keeps the
// slice. If private is longer than Options.PrivateData may be, ConnectData returns ErrConfig and does
// nothing else.
func (p *Pending) ConnectData(ctx context.Context, private []byte) (*Conn, error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return nil, err
	}
	c := p.c
	o, most, what := Options{Bare: c.opts.Bare, PrivateData: private}, verbs.MaxPrivateConnect, "a request"
	if c.accepting {
		most, what = verbs.MaxPrivateAccept, "an acceptance"
	}
	if err := o.checkPrivate(what, most); err != nil {
		return nil, err
	}
	if p.used.Swap(true) {
		return nil, errUsed
	}
	promise, f := c.rt.conns.New(nil)
	c.sh.r.Defer(func() {
		c.ownData = private
		c.goOn(promise)
	})
	if _, err = f.Await(asked); err == nil {
		p.returned.Store(true)
		return c, nil
	}
	if f.Valid() {
		f.Discard() // if the connection is established later, disposeConn closes the connection
	}
	c.Abort()
	return nil, fmt.Errorf("connecting to %v: %w", p.peer, asked.Cause(ctx, err))
}

// Conn.held delivers a prepared connection to the PrepareDial or PrepareAccept that waits for the
// connection. For PrepareAccept it clears c.from, so that the connection reports to the
// listener only that Connect waits for the peer (c.listener).
//
// The functions from here to Conn.goOn need a turn (the right to run a reactor). The methods of Conn
// need the turn of the connection's reactor. The methods of request and Listener need the turn of the
// listener's reactor.
func (c *Conn) held() {
	c.sh.r.StopTimer(c.timer)
	r := c.from
	if r == nil {
		c.promise.Settle(c, nil)
		return
	}
	c.from, c.listener = nil, r.l
	r.l.sh.r.Defer(r.held)
}

// request.held is the part of Conn.held that needs the listener's turn. It delivers the connection to
// PrepareAccept, and takes the request out of the backlog.
func (r *request) held() {
	l := r.l
	if r.stage == stageBegun {
		r.early.Settle(r.conn, nil) // if PrepareAccept no longer waits, disposeConn closes the connection
	} else { // the request was evicted, or the listener has stopped; in both cases the connection is closed
		l.passOver(r.early, ErrConnClosed)
	}
	l.backlog.remove(&r.entry)
	l.startHandshakes()
}

// passOver handles the failure err of a request that was prepared for s, a call of PrepareAccept:
//   - If the listener has stopped, s fails with the listener's cause.
//   - If the peer, the network or an eviction caused the failure (causedByPeer), s waits for the next
//     request, and gets it before all other calls. A call of TryPrepareAccept fails with ErrNoRequest.
//   - Otherwise s fails with err.
func (l *Listener) passOver(s acceptWaiter, err error) {
	switch {
	case l.cause != nil:
		s.Settle(nil, l.cause)
	case causedByPeer(err) && s.try:
		s.Settle(nil, ErrNoRequest)
	case causedByPeer(err):
		l.prepareWaiters.all = append([]acceptWaiter{s}, l.prepareWaiters.all...)
	default:
		s.Settle(nil, err)
	}
}

// Conn.goOn starts the handshake for Connect. The outcome of the handshake settles the promise p.
func (c *Conn) goOn(p futures.Promise[*Conn]) {
	if c.state != connConnecting { // the connection has ended since it was prepared
		p.Settle(nil, c.cause.Load())
		return
	}
	c.promise = p
	if !c.begin() {
		return
	}
	c.sh.r.Flush()                 // posts the receives, before the peer can send
	if c.state != connConnecting { // the queue failed in Flush
		return
	}
	if l := c.listener; l != nil {
		l.sh.r.Defer(func() { l.connects(c) })
	}
	c.sendHandshake(c.giveUpIf)
}

// errUsed is the error of Connect after an earlier Connect or Close.
var errUsed = fmt.Errorf("%w: it was connected or closed before", ErrClosed)

// unconnected is the common part of Pending and Prepared: a raw connection with a queue pair that
// is not connected yet.
type unconnected struct {
	c *Conn
	// The first call of Connect or Close sets used. If used is already set, Connect returns errUsed.
	// The flag publishes no other memory.
	used uatomic.Bool
	// Connect sets returned before it returns the Conn. From then on the caller owns the Conn. If
	// returned is set, Close does nothing. The flag publishes no other memory.
	returned uatomic.Bool
}

// PostRecv is like Conn.PostRecv, for the first messages of the peer. Receives posted before
// Connect are at the device before the peer can send. On UC, a message that finds no receive is lost.
// On RC, the peer's device sends such a message again, as many times as its RNR retry count permits
// (perhaps 0 times).
//
// Implements: ibv_post_recv.
func (u *unconnected) PostRecv(locals ...Slice) (Future, error) { return u.c.PostRecv(locals...) }

// PostRecvTo is PostRecv with a sink in place of the future, as in Conn.StartTo.
func (u *unconnected) PostRecvTo(sink Sink, tag uint64, locals ...Slice) error {
	return u.c.TryStartTo(new(PostRecvVOp(locals)), sink, tag)
}

// Loop returns the reactor of the connection.
func (u *unconnected) Loop() Loop { return u.c.Loop() }

// QPNum is the number of the queue pair.
func (u *unconnected) QPNum() uint32 { return u.c.QPNum() }

// Close closes the connection. If Connect has succeeded, Close does nothing, because the caller then
// closes the Conn. In all other cases, also after a failed Connect, Close waits as Conn.Close does.
// If a call of Connect is in progress, that call fails or returns a Conn that is being closed. Close
// is idempotent.
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
