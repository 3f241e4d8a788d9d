package runtime

import (
	"errors"
	"fmt"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// errPrepare means that no connection could be prepared for a request.
var errPrepare = errors.New("runtime: preparing a connection")

// request is a peer's request for a connection, until the connection is accepted or gone.
// Its stages in the backlog:
//
//	waiting   the request handles the events of its identifier, because the peer may give up.
//	          Before the request is accepted, Linux does not report that; the accept then
//	          fails (Linux 6.12 drivers/infiniband/core/ucma.c, ucma_event_handler)
//	begun     a goroutine prepares a connection without the turn. Then the connection
//	          handles the events, and accepts the request with the turn of its own reactor
//	ready     its connection is open, or has failed with messages to receive
//	leaving   its connection is being closed
//
// The connection and the listener may be on different reactors. The holder of the connection's turn
// reports the end of the handshake, and the end of the connection. The holder of the listener's
// turn handles these reports (settled, ended, left).
type request struct {
	// The holder of the listener's turn owns all fields except the atomic one.
	entry
	l  *Listener
	id verbs.CMID
	// private is the peer's private data. Immutable.
	private    []byte
	conn       *Conn        // nil until it is prepared
	early      acceptWaiter // the PrepareAccept for which conn was prepared; zero for none
	acceptable bool         // Accept may return conn even if it has ended
	// accepted means that an Accept has taken the connection. Listener.match sets it and
	// giveBack clears it, with the listener's turn held. The connection reads it, and sends no
	// report while it is set. It publishes nothing: a report that comes too late is ignored.
	accepted uatomic.Bool
}

// onCM implements cmTarget, until the connection handles the events.
func (r *request) onCM(ev *verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMRejected, verbs.CMDisconnected, verbs.CMConnectError, verbs.CMUnreachable, verbs.CMDeviceRemoval:
		if r.stage == stageWaiting {
			r.l.backlog.remove(&r.entry)
			r.l.sh.rejectLater(r.id, func(verbs.CMID) {}) // the peer does not wait for an answer
		} else {
			r.l.backlog.leave(&r.entry) // request.prepared ends the request
		}
		r.l.startHandshakes()
	}
}

// evict ends a request that the backlog has evicted.
func (r *request) evict(text string) {
	if r.stage == stageNone {
		r.l.sh.reject(r.id, proto.RejectResources, text)
		return
	}
	r.end()
}

// end closes the connection of a leaving request.
func (r *request) end() {
	if r.conn != nil { // otherwise request.prepared ends the request
		r.conn.Abort()
	}
}

// begin prepares a connection for the request, on another goroutine: the preparation allocates half
// a MiB and may register memory, which takes too long for the holder of the turn.
func (r *request) begin() {
	l := r.l
	if err := l.rt.enter(); err != nil { // the runtime is being closed, or its device is gone; so the listener ends soon
		l.sh.r.Defer(func() { r.prepared(nil, err) })
		return
	}
	prepare := func() {
		defer l.rt.leave()
		c, err := l.rt.newConn(l.opts)
		l.sh.r.Defer(func() { r.prepared(c, err) })
	}
	if l.rt.cfg.stepped {
		prepare()
	} else {
		go prepare()
	}
}

// The method prepared has the prepared connection c accept the request. It refuses the request if
// err is not nil, or if the request is not begun any more.
func (r *request) prepared(c *Conn, err error) {
	l := r.l
	delete(l.sh.targets, r.id) // from now on the connection handles the events
	switch {
	case err != nil:
		r.stops(proto.RejectResources, err.Error())
		l.failed(fmt.Errorf("%w: %w", errPrepare, err))
	case r.stage != stageBegun: // evicted, or withdrawn by the peer
		_ = c.abandon(ErrConnClosed) // c is unused, and has no queue pair yet
		if l.cause != nil {
			r.stops(proto.RejectClosed, listenerClosed)
		} else {
			r.stops(proto.RejectResources, "others have come since")
		}
	default:
		c.from, r.conn = r, c
		r.early, c.hold = l.prepareWaiters.next()
		c.sh.r.Defer(func() {
			c.accept(r)
			l.sh.r.Defer(r.made)
		})
		return
	}
	r.made()
}

// The method stops refuses a begun or leaving request that has no connection.
func (r *request) stops(code uint16, text string) {
	r.l.backlog.remove(&r.entry)
	r.l.sh.reject(r.id, code, text)
}

// The method made ends the preparation of the connection. The preparation of another one may then
// begin.
func (r *request) made() {
	r.l.backlog.prepared(&r.entry, r.l.rt.cfg.now())
	r.l.startHandshakes()
}

// accept accepts a request. The caller holds the turn of the connection's reactor.
func (c *Conn) accept(r *request) {
	err := c.setID(r.id)
	c.remote, c.accepting = r.id.PeerAddr(), true
	if !c.begin() {
		return
	}
	if err == nil {
		err = r.id.Migrate(c.sh.cm)
	}
	if err == nil {
		err = c.readPeerHello(r.private)
	}
	if err == nil {
		err = c.ready()
	}
	if err != nil {
		_ = r.id.Reject(proto.EncodeReject(proto.RejectResources, err.Error())) // if Reject fails, the peer times out
		c.giveUp(err)
	}
}

// The method settle passes the outcome of the handshake to the listener, to Dial or to
// Pending.Connect. A nil err is a success. Holder only.
func (c *Conn) settle(err error) {
	switch {
	case c.from != nil:
		r := c.from
		r.l.sh.r.Defer(func() { r.settled(err) })
	case err != nil:
		c.promise.Settle(nil, err)
	default:
		c.promise.Settle(c, nil)
	}
}

// The method settled handles the outcome of the handshake. Only the holder of the listener's turn
// calls the methods settled, ended and left.
func (r *request) settled(err error) {
	l := r.l
	if err == nil {
		if l.backlog.establish(&r.entry) {
			r.acceptable = true // a waiting Accept gets the connection even if it has just ended
			l.match()
			r.acceptable = false
		}
		return
	}
	l.backlog.remove(&r.entry)
	if r.early != (acceptWaiter{}) {
		l.passOver(r.early, err)
	} else {
		l.failed(err)
	}
	l.startHandshakes()
}

// causedByPeer reports whether err comes from the peer, the network or an eviction, and not from a
// local shortage. Accept does not return errors for which it reports true.
func causedByPeer(err error) bool {
	_, rejected := errors.AsType[*RejectError](err)
	_, failed := errors.AsType[*verbs.WCError](err)
	is := rejected || failed
	for _, e := range []error{ErrConnectTimeout, ErrUnreachable, ErrPeerClosed, ErrPeerProtocol, ErrPeerTimeout, ErrQueuePair, ErrConnClosed} {
		is = is || errors.Is(err, e)
	}
	return is
}

// The method ended handles the end of a connection that was not accepted. No more messages arrive.
// The argument some reports whether there are messages to receive.
func (r *request) ended(some bool) {
	if r.stage != stageReady {
		return
	}
	if r.acceptable = some; some {
		r.l.match()
		return
	}
	r.l.backlog.leave(&r.entry)
	r.l.failed(r.conn.cause.Load())
	r.conn.Abort()
}

// The method left handles the report that a connection has released everything.
func (r *request) left() {
	r.l.backlog.remove(&r.entry)
	r.l.startHandshakes()
}

// The method report notifies the listener that the connection has ended. If gone is true, it
// notifies that the connection has released everything. It does nothing if the connection was
// accepted. Only the holder of the connection's turn calls it.
func (c *Conn) report(gone bool) {
	r := c.from
	if r == nil || r.accepted.Load() {
		return
	}
	if gone {
		r.l.sh.r.Defer(r.left)
		return
	}
	some := len(c.arrived) > 0
	r.l.sh.r.Defer(func() { r.ended(some) })
}

// giveBack returns the connection of a discarded future to the listener, for the next Accept. Any
// goroutine may call it.
func (r *request) giveBack() {
	r.l.sh.r.Defer(func() {
		if r.l.cause != nil {
			r.conn.Abort()
			return
		}
		r.accepted.Store(false)
		r.l.backlog.putBack(&r.entry)
		r.conn.sh.r.Defer(func() { // repeat a report that was omitted while accepted was set
			if gone := isGone(r.conn); gone || r.conn.drained {
				r.conn.report(gone)
			}
		})
		r.l.match()
	})
}
