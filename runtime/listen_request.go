package runtime

import (
	"errors"
	"fmt"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// errPrepare says that a connection could not be prepared for a request.
var errPrepare = errors.New("runtime: preparing a connection")

// request is a peer's request for a connection, until the connection is accepted or gone.
// What it does in the stages of backlog:
//
//	waiting   it gets the events of its identifier: the peer may give up. A device of the
//	          kernel does not tell: it keeps the events of a request back until it is
//	          accepted, and then accepting fails (Linux 6.12 drivers/infiniband/core/ucma.c,
//	          ucma_event_handler)
//	begun     its connection is prepared off the turn, then accepts the request, on the
//	          turn of its reactor, and gets the events
//	ready     its connection is open, or has failed with messages to be received
//	leaving   its connection is being closed
//
// The connection reports to the request on its own reactor's turn, and the request goes
// on on the listener's.
type request struct {
	entry // the holder's, of the listener's reactor; so is all but given
	l     *Listener
	id    verbs.CMID
	// private is what the peer sent. Immutable.
	private []byte
	conn    *Conn        // from when it was prepared
	early   acceptWaiter // of PrepareAccept, for which it was prepared; zero for none
	worth   bool         // it is to be accepted though the connection may have ended
	// given says that somebody has accepted the connection. Set by match and cleared by
	// returnCredits, which hold the listener's turn; read by the connection, which then reports no
	// more. It publishes nothing: what is reported needlessly is passed over.
	given uatomic.Bool
}

// onCM implements cmTarget, before the connection gets the events.
func (r *request) onCM(ev *verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMRejected, verbs.CMDisconnected, verbs.CMConnectError, verbs.CMUnreachable, verbs.CMDeviceRemoval:
		if r.stage == stageWaiting {
			r.l.backlog.remove(&r.entry)
			r.l.sh.rejectLater(r.id, func(verbs.CMID) {}) // the peer does not wait for an answer
		} else {
			r.l.backlog.leave(&r.entry) // prepared sees to it
		}
		r.l.pump()
	}
}

// giveWay ends a request that the backlog has put out.
func (r *request) giveWay(text string) {
	if r.stage == stageNone {
		r.l.sh.reject(r.id, proto.RejectResources, text)
		return
	}
	r.end()
}

// end closes the connection of a request that is leaving.
func (r *request) end() {
	if r.conn != nil { // else prepared sees to it
		r.conn.Abort()
	}
}

// begin has a connection prepared for the request. That allocates half a MiB and may
// register memory: it is not for the turn.
func (r *request) begin() {
	l := r.l
	if err := l.rt.enter(); err != nil { // the listener is about to be told
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

// prepared has the connection accept the request.
func (r *request) prepared(c *Conn, err error) {
	l := r.l
	delete(l.sh.targets, r.id) // the connection's from here on
	switch {
	case err != nil:
		r.stops(proto.RejectResources, err.Error())
		l.failed(fmt.Errorf("%w: %w", errPrepare, err))
	case r.stage != stageBegun: // it was given up, here or there
		_ = c.abandon(ErrConnClosed) // nobody waits for it, and the device has nothing of it
		if l.why != nil {
			r.stops(proto.RejectClosed, listenerClosed)
		} else {
			r.stops(proto.RejectResources, "others have come since")
		}
	default:
		c.from, r.conn = r, c
		r.early, c.hold = l.early.next()
		c.sh.r.Defer(func() {
			c.accept(r)
			l.sh.r.Defer(r.made)
		})
		return
	}
	r.made()
}

// stops refuses a request that was begun and has no connection.
func (r *request) stops(code uint16, text string) {
	r.l.backlog.remove(&r.entry)
	r.l.sh.reject(r.id, code, text)
}

// made has the next connection prepared.
func (r *request) made() {
	r.l.backlog.made(&r.entry, r.l.rt.cfg.now())
	r.l.pump()
}

// accept answers a request, on the turn of the connection's reactor.
func (c *Conn) accept(r *request) {
	err := c.own(r.id)
	c.remote, c.answers = r.id.PeerAddr(), true
	if !c.begin() {
		return
	}
	if err == nil {
		err = r.id.Migrate(c.sh.cm)
	}
	if err == nil {
		err = c.meet(r.private)
	}
	if err == nil {
		err = c.ready()
	}
	if err != nil {
		_ = r.id.Reject(proto.EncodeReject(proto.RejectResources, err.Error())) // if that fails, the peer times out
		c.giveUp(err)
	}
}

// settle tells who waits for the connection that it is there, or why it will not be.
// Holder only.
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

// settled is the outcome of the handshake.
func (r *request) settled(err error) {
	l := r.l
	if err == nil {
		if l.backlog.establish(&r.entry) {
			r.worth = true // to who waits for it now
			l.match()
			r.worth = false
		}
		return
	}
	l.backlog.remove(&r.entry)
	if r.early != (acceptWaiter{}) {
		l.passOver(r.early, err)
	} else {
		l.failed(err)
	}
	l.pump()
}

// theirs reports whether a connection that ended with err did so because of its peer, or
// because it gave way: who accepts need not know. The rest is the device's or ours.
func theirs(err error) bool {
	_, rejected := errors.AsType[*RejectError](err)
	_, failed := errors.AsType[*verbs.WCError](err)
	is := rejected || failed
	for _, e := range []error{ErrConnectTimeout, ErrUnreachable, ErrPeerClosed, ErrPeerProtocol, ErrPeerTimeout, ErrQueuePair, ErrConnClosed} {
		is = is || errors.Is(err, e)
	}
	return is
}

// ended is told by a connection that nobody has accepted: nothing more arrives, and some
// has arrived or not.
func (r *request) ended(some bool) {
	if r.stage != stageReady {
		return
	}
	if r.worth = some; some {
		r.l.match()
		return
	}
	r.l.backlog.leave(&r.entry)
	r.l.failed(r.conn.cause.Load())
	r.conn.Abort()
}

// left is told by a connection that is gone.
func (r *request) left() {
	r.l.backlog.remove(&r.entry)
	r.l.pump()
}

// report tells the listener that the connection has ended, or is gone, unless somebody
// has accepted it. Holder only, of the connection's reactor.
func (c *Conn) report(gone bool) {
	r := c.from
	if r == nil || r.given.Load() {
		return
	}
	if gone {
		r.l.sh.r.Defer(r.left)
		return
	}
	some := len(c.arrived) > 0
	r.l.sh.r.Defer(func() { r.ended(some) })
}

// returnCredits makes a connection whose future was discarded the next to be accepted. Any
// goroutine.
func (r *request) giveBack() {
	r.l.sh.r.Defer(func() {
		if r.l.why != nil {
			r.conn.Abort()
			return
		}
		r.given.Store(false)
		r.l.backlog.putBack(&r.entry)
		r.conn.sh.r.Defer(func() { // what it did not report meanwhile
			if gone := isGone(r.conn); gone || r.conn.drained {
				r.conn.report(gone)
			}
		})
		r.l.match()
	})
}
