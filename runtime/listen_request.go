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
//	waiting   it gets the events of its identifier, because the peer may give up. The kernel
//	          reports that only when the request is accepted, which fails then (Linux 6.12
//	          drivers/infiniband/core/ucma.c, ucma_event_handler)
//	begun     a goroutine prepares its connection without the turn; then the connection
//	          accepts the request with the turn of its own reactor, and gets the events
//	ready     its connection is open, or has failed with messages to receive
//	leaving   its connection is being closed
//
// The connection reports to the request with its own reactor's turn held. The request handles
// reports with the listener's turn held.
type request struct {
	// The holder of the listener's turn owns all fields except the atomic one.
	entry
	l  *Listener
	id verbs.CMID
	// private is the peer's private data. Immutable.
	private    []byte
	conn       *Conn        // set once it is prepared
	early      acceptWaiter // the PrepareAccept it was prepared for; zero for none
	acceptable bool         // acceptable even if the connection has ended
	// accepted means that the connection was accepted. match sets it and giveBack clears it,
	// with the listener's turn held. The connection reads it, and reports nothing more once it is
	// set. It publishes nothing: a report that comes too late is ignored.
	accepted uatomic.Bool
}

// onCM implements cmTarget, until the connection gets the events.
func (r *request) onCM(ev *verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMRejected, verbs.CMDisconnected, verbs.CMConnectError, verbs.CMUnreachable, verbs.CMDeviceRemoval:
		if r.stage == stageWaiting {
			r.l.backlog.remove(&r.entry)
			r.l.sh.rejectLater(r.id, func(verbs.CMID) {}) // the peer does not wait for an answer
		} else {
			r.l.backlog.leave(&r.entry) // the function prepared ends the request
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

// end closes the connection of a request that is leaving.
func (r *request) end() {
	if r.conn != nil { // otherwise the function prepared ends the request
		r.conn.Abort()
	}
}

// begin prepares a connection for the request, on another goroutine: that allocates half a
// MiB and may register memory, which takes too long with the turn held.
func (r *request) begin() {
	l := r.l
	if err := l.rt.enter(); err != nil { // the runtime closes, or its device is gone: the listener stops soon
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

// prepared makes the connection accept the request, or ends the request if err is not nil or
// it was evicted meanwhile.
func (r *request) prepared(c *Conn, err error) {
	l := r.l
	delete(l.sh.targets, r.id) // from here on the connection gets the events
	switch {
	case err != nil:
		r.stops(proto.RejectResources, err.Error())
		l.failed(fmt.Errorf("%w: %w", errPrepare, err))
	case r.stage != stageBegun: // evicted, or withdrawn by the peer
		_ = c.abandon(ErrConnClosed) // it is unused, and has no queue pair yet
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

// stops refuses a request in stage begun that has no connection.
func (r *request) stops(code uint16, text string) {
	r.l.backlog.remove(&r.entry)
	r.l.sh.reject(r.id, code, text)
}

// made ends the preparation, so that the next connection can be prepared.
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
		_ = r.id.Reject(proto.EncodeReject(proto.RejectResources, err.Error())) // if that fails, the peer times out
		c.giveUp(err)
	}
}

// settle reports the outcome of connecting to the listener or to the waiting Dial. Holder only.
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

// settled handles the outcome of the handshake.
func (r *request) settled(err error) {
	l := r.l
	if err == nil {
		if l.backlog.establish(&r.entry) {
			r.acceptable = true // an Accept that waits now gets it even if it ends meanwhile
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

// causedByPeer reports whether err is the peer's fault or the result of an eviction. Accept ignores
// such errors; the others are local.
func causedByPeer(err error) bool {
	_, rejected := errors.AsType[*RejectError](err)
	_, failed := errors.AsType[*verbs.WCError](err)
	is := rejected || failed
	for _, e := range []error{ErrConnectTimeout, ErrUnreachable, ErrPeerClosed, ErrPeerProtocol, ErrPeerTimeout, ErrQueuePair, ErrConnClosed} {
		is = is || errors.Is(err, e)
	}
	return is
}

// ended handles the end of a connection that was not accepted: nothing more arrives. The argument
// reports whether messages have arrived.
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

// left handles the report that a connection is gone.
func (r *request) left() {
	r.l.backlog.remove(&r.entry)
	r.l.startHandshakes()
}

// report notifies the listener that the connection has ended, or is gone, unless it was
// accepted. Holder only, of the connection's reactor.
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

// giveBack is called when the future of a connection was discarded: the next Accept gets the
// connection. Any goroutine.
func (r *request) giveBack() {
	r.l.sh.r.Defer(func() {
		if r.l.cause != nil {
			r.conn.Abort()
			return
		}
		r.accepted.Store(false)
		r.l.backlog.putBack(&r.entry)
		r.conn.sh.r.Defer(func() { // repeat reports suppressed while given was set
			if gone := isGone(r.conn); gone || r.conn.drained {
				r.conn.report(gone)
			}
		})
		r.l.match()
	})
}
