package actor

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/verbena-rdma/verbena/internal/model"
)

// panicked wraps a recovered value in a PanicError.
func panicked(v any) error { return &PanicError{Value: v, Stack: debug.Stack()} }

// fail ends the instance after a failure. The message, completion or connection event in progress
// is reported as a dead letter. Runner only.
func (a *core) fail(cause error) {
	switch a.phase {
	case windingUp, resting, over:
		// In these phases only Stopped is called. If Stopped called Goexit, the method stopped has
		// already dropped the instance. A panic in Stopped does not get here, so another panic is that
		// of a callback of Config.
		if errors.Is(cause, ErrGoexit) {
			return
		}
		panic(cause)
	}
	a.sys.stats.Failures.Add(1)
	if e := a.current; e != nil {
		a.current = nil
		a.discardFor(e, cause)
	}
	a.body.interrupted(cause)
	again := a.judge()
	if again {
		a.notify(cause, true, a.delay)
	}
	a.windDown(cause, again)
}

// judge applies the rule Options.Restart to a failure. It reports whether the actor restarts. If so,
// it sets the field delay. Runner only.
func (a *core) judge() (again bool) {
	r := a.opt.Restart
	if a.stopSeen != stopNot || r.Most < 0 {
		return false
	}
	now := a.sys.cfg.Clock.Now()
	kept := a.failures[:0]
	for _, at := range a.failures {
		if now.Sub(at) < r.Within {
			kept = append(kept, at)
		}
	}
	a.failures = append(kept, now)
	n := len(a.failures)
	if n > r.Most {
		return false
	}
	d := r.First
	for range n - 1 {
		if d >= r.Last/2 {
			d = r.Last
			break
		}
		d *= 2
	}
	more := time.Duration(a.random.Int64N(int64(d/2) + 1))
	a.delay = d + min(more, math.MaxInt64-d)
	return true
}

// notify passes a ChildEvent to the parent, or to Config.Notice if there is no parent. Runner only.
func (a *core) notify(err error, restarts bool, delay time.Duration) {
	ev := ChildEvent{ID: a.id, Name: a.opt.Name, Err: err, Restarts: restarts, Delay: delay}
	if restarts {
		ev.Failures = 1
	}
	if a.parentOf == nil {
		if a.sys.cfg.Notice != nil {
			a.sys.cfg.Notice(ev)
		}
		return
	}
	if restarts && a.merge(&ev) {
		return
	}
	a.parentOf.pushSystem(&event{a: a.parentOf, kind: evChild, child: a, notice: ev})
}

// merge makes ev the failure that the parent has not handled yet. It returns true if there was one
// already: ev then takes its place, in the event that is in the parent's lane. Otherwise the caller
// pushes an event. So the lane of a parent that is busy has at most one failure of each child, however
// often the child restarts. Runner only.
func (a *core) merge(ev *ChildEvent) bool {
	if old := a.unseen.Load(); old != nil {
		merged := *ev
		merged.Failures += old.Failures
		if ev.Delay == 0 { // a panic in Stopped, which does not hide the failure before it
			merged.Err, merged.Delay = errors.Join(old.Err, ev.Err), old.Delay
		}
		model.Yield("merge")
		if a.unseen.CompareAndSwap(old, &merged) {
			return true
		}
		// The parent has taken old.
	}
	model.Yield("unseen")
	a.unseen.Store(ev)
	return false
}

// escalates reports whether the end of this actor with err is a failure of its parent.
func (a *core) escalates(err error) bool {
	return a.opt.Restart.Escalate && err != nil && !errors.Is(err, ErrStopped)
}

// systemEvent handles an event of the system lane. Runner only.
func (a *core) systemEvent(e *event) {
	ended := e.kind == evChild && !e.notice.Restarts
	if ended {
		delete(a.children, e.child)
	} else if e.kind == evChild {
		e.notice = *e.child.unseen.Swap(nil)
	}
	switch a.phase {
	case up, draining, parting:
	default:
		return
	}
	a.current = e
	a.body.handle(e) // a handler without a method for e ignores it
	a.current = nil
	if ended && e.child.escalates(e.notice.Err) {
		a.fail(fmt.Errorf("%w: %s: %w", ErrEscalated, e.notice.Name, e.notice.Err))
	}
}

// event handles an event of the common lane. Runner only.
func (a *core) event(e *event) {
	switch e.kind {
	case evTimer:
		a.timerEvent(e)
	case evMessage:
		a.linkEvent(e)
	case evConn:
		a.connEvent(e)
	default:
		a.dispatch(e)
		a.freeEvent(e)
	}
}

// dispatch passes e to the handler. If the handler has no method for e, dispatch reports e.
func (a *core) dispatch(e *event) {
	a.current = e
	ok := a.body.handle(e)
	a.current = nil
	if !ok {
		a.refuse(e, ErrUnhandled)
	}
}

// discard reports an event of an instance that is winding up, and frees the event. Runner only.
func (a *core) discard(e *event) {
	cause := ErrRestarted
	if !a.restart {
		cause = a.unhandledCause()
	}
	if e.kind == evMessage {
		a.heard(e.link)
	}
	a.discardFor(e, cause)
}

// discardFor reports e and frees it.
func (a *core) discardFor(e *event, cause error) {
	a.refuse(e, cause)
	switch e.kind {
	case evCompletion, evMessage, evConn:
		a.freeEvent(e)
	}
}

// refuse reports e as a dead letter, releases its message and aborts its new connection. It reports
// only completions and connection events. A handler without a method for a timer, a device event or
// a child event ignores such an event.
func (a *core) refuse(e *event, cause error) {
	switch e.kind {
	case evCompletion:
		a.deadLetter(e.completion(), cause)
	case evMessage, evConn:
		if e.err == nil && e.kind == evMessage {
			_ = e.msg.Release() // fails with ErrMessage if the handler has released the message
		}
		if e.err == nil && e.kind == evConn {
			e.conn.Abort()
		}
		a.deadLetter(e.connEvent(), cause)
	}
}

func (e *event) completion() Completion {
	return Completion{Tag: e.tag, Conn: e.conn, Result: e.result, Err: e.err}
}

// connEvent returns e as the ConnEvent that a handler receives.
func (e *event) connEvent() ConnEvent {
	ev := ConnEvent{Tag: e.tag, Conn: e.conn, Message: e.msg, Err: e.err}
	switch {
	case e.kind == evMessage && e.err == nil:
		ev.Kind = ConnMessage
	case e.kind == evMessage:
		ev.Kind = ConnClosed
	case e.err == nil:
		ev.Kind = ConnEstablished
	default:
		ev.Kind = ConnFailed
	}
	return ev
}
