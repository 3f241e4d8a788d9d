package runtime

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// errPrepare means that no connection could be prepared for a request.
var errPrepare = errors.New("runtime: preparing a connection")

// request is a peer's request for a connection. The backlog has the request until the connection is
// accepted or gone. The stages in the backlog:
//
//	waiting   request.onCM handles the events of the identifier: the peer may withdraw its
//	          request. (Linux does not report that the peer has withdrawn the request before
//	          the request is accepted. The accept then fails: Linux 6.12
//	          drivers/infiniband/core/ucma.c, ucma_event_handler)
//	begun     a goroutine prepares a connection without the turn. Then the connection
//	          handles the events of the identifier, and accepts the request with the turn of
//	          the connection's reactor
//	ready     the connection is open, or has failed with messages to receive
//	leaving   the connection is being closed
//
// The connection and the listener may be on different reactors. The holder of the connection's turn
// reports the end of the handshake, and the end of the connection. The holder of the listener's
// turn handles these reports (request.settled, request.ended, request.left).
type request struct {
	// The holder of the listener's turn owns all fields except accepted.
	entry
	l          *Listener
	id         verbs.CMID
	private    []byte       // the peer's private data. Immutable
	data       []byte       // the user's part of private
	unwanted   func()       // ends the context of Options.Admit; set by request.begin
	conn       *Conn        // nil until the connection is prepared
	early      acceptWaiter // the call of PrepareAccept that gets conn before the handshake; zero for none
	acceptable bool         // Accept may return conn even if conn has ended
	// accepted means that an Accept has taken the connection, which then sends no reports.
	// Listener.match sets the flag, and request.giveBack clears it, with the listener's turn held;
	// Conn.report reads it. The flag publishes no other memory. If Conn.report still reads false
	// after Listener.match has set the flag, the listener ignores the report. If Conn.report still
	// reads true after giveBack has cleared the flag, giveBack repeats the report.
	accepted uatomic.Bool
}

// onCM implements cmTarget. It is called only before the connection handles the events of the
// identifier.
func (r *request) onCM(ev *verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMRejected, verbs.CMDisconnected, verbs.CMConnectError, verbs.CMUnreachable, verbs.CMDeviceRemoval:
		if r.stage == stageWaiting {
			r.l.backlog.remove(&r.entry)
			r.l.sh.rejectLater(r.id, func(verbs.CMID) {}) // no answer: the peer does not wait for one
		} else {
			r.l.backlog.leave(&r.entry)
			r.end() // request.prepared then refuses the request
		}
		r.l.startHandshakes()
	}
}

// request.evict ends a request that the backlog has evicted. If the request was waiting, the peer
// gets the text.
func (r *request) evict(text string) {
	if r.stage == stageNone {
		r.l.sh.reject(r.id, proto.RejectResources, text)
		return
	}
	r.end()
}

// request.end ends the context of Options.Admit for a leaving request, and closes the request's
// connection.
func (r *request) end() {
	if r.unwanted != nil {
		r.unwanted()
	}
	if r.conn != nil { // otherwise request.prepared refuses the request
		r.conn.Abort()
	}
}

// request.begin calls Options.Admit and prepares a connection for the request, on another
// goroutine. The holder of the turn must not do this work: Admit may block, and preparing a
// connection may map and register memory.
func (r *request) begin() {
	l, opts := r.l, &r.l.opts
	if s, ok := l.prepareWaiters.next(); ok {
		r.early = s
		if r.claimed = true; s.opts != nil {
			opts = s.opts
		}
	}
	if err := l.rt.enter(); err != nil { // the runtime is being closed, or its device is gone: the listener stops soon
		l.sh.r.Defer(func() { r.prepared(nil, err) })
		return
	}
	asked := Request{Peer: r.id.PeerAddr(), Local: r.id.LocalAddr(), PrivateData: r.data}
	ctx, cancel := context.WithCancel(context.Background())
	r.unwanted = cancel
	prepare := func() {
		var c *Conn
		var err error
		returned := false
		defer func() { // runs even if Admit panics or calls runtime.Goexit
			if v := recover(); v != nil {
				_ = reactor.Recovered(v, l.rt.cfg.OnPanic)
			}
			if !returned {
				err = l.opts.refusal(errAdmitEnded)
			}
			cancel()
			l.sh.r.Defer(func() { r.prepared(c, err) })
			l.rt.leave() // after Defer, so that r.prepared runs before Runtime.Close waits for the identifiers that are being closed
		}()
		if err = l.opts.admit(ctx, asked); err == nil {
			c, err = l.rt.newConn(nil, *opts)
		}
		returned = true
	}
	if l.rt.cfg.stepped {
		prepare()
	} else {
		go prepare()
	}
}

// request.prepared is called when the preparation has ended: with the connection c, or with the
// error err. If err is nil and the request is still in the stage begun, c accepts the request.
// Otherwise request.prepared refuses the request.
func (r *request) prepared(c *Conn, err error) {
	l := r.l
	delete(l.sh.targets, r.id) // from now on only the connection handles the events of the identifier
	refused, isRefused := errors.AsType[notAdmitted](err)
	switch {
	case isRefused:
		l.backlog.remove(&r.entry)
		l.sh.rejectLater(r.id, func(id verbs.CMID) { _ = id.Reject(refused) }) // if Reject fails, the peer times out
		r.failed(ErrConnClosed)
	case err != nil:
		r.stops(proto.RejectResources, err.Error())
		r.failed(fmt.Errorf("%w: %w", errPrepare, err))
	case r.stage != stageBegun: // the backlog evicted the request, the peer withdrew it, or the listener stopped
		_ = c.abandon(ErrConnClosed) // c was never used, and has no queue pair yet
		if l.cause != nil {
			r.stops(proto.RejectClosed, listenerClosed)
		} else {
			r.stops(proto.RejectResources, "newer requests have filled the backlog")
		}
		r.failed(ErrConnClosed)
	default:
		c.from, r.conn = r, c
		r.answers = true
		c.hold = r.early != (acceptWaiter{})
		c.sh.r.Defer(func() {
			c.accept(r, func() { l.sh.r.Defer(r.made) })
		})
		return
	}
	r.made()
}

// request.stops refuses a begun or leaving request that has no connection.
func (r *request) stops(code uint8, text string) {
	r.l.backlog.remove(&r.entry)
	r.l.sh.reject(r.id, code, text)
}

// request.made is called when the preparation of the connection has ended. The preparation of
// another connection may then begin.
func (r *request) made() {
	r.l.backlog.prepared(&r.entry, r.l.rt.cfg.now())
	r.l.startHandshakes()
}

// Conn.accept accepts the request r. If it fails, it rejects r and fails the connection. It calls made
// when the queue pair is made and moved, or never will be. The caller holds the turn of the connection's
// reactor.
func (c *Conn) accept(r *request, made func()) {
	c.remote, c.accepting, c.silent = r.id.PeerAddr(), true, c.beginsWithFirst()
	err := c.setID(r.id)
	if !c.begin() {
		made()
		return
	}
	then := func(err error) {
		if err != nil && c.state == connConnecting {
			_ = r.id.Reject(proto.Reject{Code: proto.RejectResources, Text: err.Error()}.Encode()) // if Reject fails, the peer times out
			c.giveUp(err)
		}
		made()
	}
	if err == nil {
		if err = r.id.Migrate(c.sh.cm); err != nil {
			err = c.unprepared(err)
		}
	}
	if err == nil {
		err = c.readPeerHello(r.private)
	}
	if err != nil {
		then(err)
		return
	}
	c.ready(then)
}

// unprepared returns err as the error of a connection that could not be prepared. On the accepting side it
// fails the call that waits for the connection. But EINVAL means that the peer has withdrawn its request: the
// identifier then has no attributes for a queue pair (Linux 6.12 drivers/infiniband/core/cm.c,
// cm_init_qp_init_attr).
func (c *Conn) unprepared(err error) error {
	switch {
	case !c.accepting:
		return err
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return fmt.Errorf("%w: %w", errPrepare, err)
}

// Conn.settle passes the outcome of the handshake to the listener, to Dial or to Pending.Connect.
// If err is nil, the handshake has succeeded. Holder only.
func (c *Conn) settle(err error) {
	if l := c.listener; l != nil {
		c.listener = nil
		l.sh.r.Defer(func() { l.connected(c) })
	}
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

// request.settled handles the outcome of the handshake. Only the holder of the listener's turn
// calls the methods r.settled, r.ended and r.left.
func (r *request) settled(err error) {
	l := r.l
	if err == nil {
		if l.backlog.establish(&r.entry, l.rt.cfg.now()) {
			r.acceptable = true // a waiting Accept gets the connection even if the connection has ended meanwhile
			l.match()
			r.acceptable = false
		}
		return
	}
	l.backlog.remove(&r.entry)
	r.failed(err)
	l.startHandshakes()
}

// request.failed passes the reason why there is no connection to the call of PrepareAccept that has
// claimed the request, or to the listener.
func (r *request) failed(err error) {
	if r.early != (acceptWaiter{}) {
		r.l.passOver(r.early, err)
	} else {
		r.l.failed(err)
	}
}

// causedByPeer reports whether the peer, the network or an eviction caused err, and not a failure
// at this end. Accept does not return errors for which causedByPeer is true. An overrun of a completion
// queue ends connections with the errors of their peers too, and is a failure at this end.
func causedByPeer(err error) bool {
	if errors.Is(err, reactor.ErrOverrun) {
		return false
	}
	_, rejected := errors.AsType[*RejectError](err)
	_, failed := errors.AsType[*verbs.WCError](err)
	is := rejected || failed
	for _, e := range []error{ErrConnectTimeout, ErrUnreachable, ErrPeerClosed, ErrPeerProtocol, ErrPeerTimeout, ErrQueuePair, ErrConnClosed} {
		is = is || errors.Is(err, e)
	}
	return is
}

// request.ended handles the end of a connection that was not accepted. No more messages arrive. The
// argument reports whether there are messages to receive. If there are, Accept may return the
// connection. Otherwise request.ended closes the connection.
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

// request.left handles the report that the connection has freed its resources.
func (r *request) left() {
	r.l.backlog.remove(&r.entry)
	r.l.startHandshakes()
}

// Conn.report reports the end of the connection to the listener. If gone is false, the connection
// has no outstanding requests any more. If gone is true, it has freed its resources. If the
// connection was accepted, report does nothing. Only the holder of the connection's turn calls
// report.
func (c *Conn) report(gone bool) {
	r := c.from
	if r == nil || r.accepted.Load() {
		return
	}
	if gone {
		r.l.sh.r.Defer(r.left)
		return
	}
	some := c.hasMessages()
	r.l.sh.r.Defer(func() { r.ended(some) })
}

// reportMessages reports to the listener that the peer has left, if the connection was not accepted and has
// messages: Accept may return it, although its last sends may not end before ackGrace. Only the holder of
// the connection's turn calls reportMessages.
func (c *Conn) reportMessages() {
	r := c.from
	if r == nil || r.accepted.Load() {
		return
	}
	c.sh.r.Defer(func() {
		c.sh.r.Drain() // messages that have arrived before the peer left
		if c.hasMessages() {
			r.l.sh.r.Defer(func() { r.ended(true) })
		}
	})
}

// giveBack returns an accepted connection, whose future was discarded, to the listener. The next
// Accept gets the connection. Any goroutine may call giveBack.
func (r *request) giveBack() {
	r.l.sh.r.Defer(func() {
		if r.l.cause != nil {
			r.conn.Abort()
			return
		}
		r.accepted.Store(false)
		r.l.backlog.putBack(&r.entry)
		r.conn.sh.r.Defer(func() { // repeat the report that Conn.report may have omitted while accepted was set
			if gone := isGone(r.conn); gone || r.conn.drained {
				r.conn.report(gone)
			}
		})
		r.l.match()
	})
}
