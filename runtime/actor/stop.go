package actor

import (
	"errors"

	"github.com/verbena-rdma/verbena/runtime/internal/seam"
)

// applyStop carries out a request of Stop or StopNow. Runner only.
func (a *core) applyStop(how uint32) {
	// requestStop shuts the mailbox too, after it sets the request. But its goroutine may be
	// delayed between the two, while the actor drains an open mailbox, ends, and gets more
	// messages.
	a.body.shut()
	switch a.phase {
	case fresh: // not started: only the mailbox is left to end
		if how == stopNow {
			a.windDown(ErrStopped, false)
		}
		// Stop: it begins, drains and parts.
	case up:
		if how == stopNow {
			a.windDown(ErrStopped, false)
			return
		}
		a.drain()
	case draining, parting:
		a.windDown(ErrStopped, false) // only stopNow exceeds an earlier request
	case windingUp:
		a.restart = false // no restart
	case resting:
		if a.wakeUp != nil {
			a.wakeUp()
		}
		a.phase = windingUp
		a.restart = false
	}
}

// drain begins a graceful stop. Runner only.
func (a *core) drain() {
	a.phase = draining
	a.stopTimers()
	a.stopConnects()
}

// part continues a graceful stop when nothing is left to handle; false if it has to wait. Runner
// only.
func (a *core) part() bool {
	if a.body.pending() > 0 {
		return false // a Tell is in progress, and wakes the actor
	}
	if a.phase == draining {
		if a.operations() > 0 {
			return false
		}
		a.phase = parting
		for c := range a.children {
			c.requestStop(stopDrain)
		}
		for _, l := range a.links {
			seam.EndConn(l.conn)
		}
		return true
	}
	if a.outstanding > 0 || len(a.children) > 0 {
		return false
	}
	a.conclude(nil)
	return true
}

// operations returns the number of outstanding operations, without the receives of owned
// connections, which end only when the connections do. Runner only.
func (a *core) operations() int { return a.outstanding - a.listening }

// windDown begins to end an instance at once. Runner only.
func (a *core) windDown(cause error, restart bool) {
	a.phase, a.cause, a.restart = windingUp, cause, restart
	if !restart {
		a.body.shut()
	}
	a.watches.Store(false)
	a.stopTimers()
	a.stopConnects()
	a.cancel()
	for _, o := range a.outboxes {
		o.drop(cause)
	}
	for _, l := range a.links {
		l.conn.Abort()
	}
	for c := range a.children {
		c.requestStop(stopNow)
	}
}

// windUp discards what still arrives, and reports whether it did something. Runner only.
func (a *core) windUp() bool {
	if e := a.events.pop(); e != nil {
		a.discard(e)
		return true
	}
	if !a.restart && a.body.report(a.unhandledCause()) {
		return true
	}
	if a.outstanding > 0 || len(a.children) > 0 || !a.restart && a.body.pending() > 0 {
		return false
	}
	cause := a.cause
	if !a.restart {
		a.conclude(cause)
		return true
	}
	a.body.stopped(cause)
	a.settleOwed(errors.Join(ErrNoReply, cause))
	a.clear()
	a.phase = resting
	a.due.Store(false)
	a.wakeUp = a.sys.cfg.Clock.After(a.delay, func() {
		a.due.Store(true)
		a.wake()
	})
	return true
}

// unhandledCause returns the error for messages that an actor leaves: ErrStopped, joined with the
// failure that ended the actor. Runner only.
func (a *core) unhandledCause() error {
	if a.cause == nil || errors.Is(a.cause, ErrStopped) {
		return ErrStopped
	}
	return errors.Join(ErrStopped, a.cause)
}

// revive begins the next instance after a rest. Runner only.
func (a *core) revive() bool {
	a.due.Store(false)
	a.wakeUp = nil
	a.restart = false
	a.cause = nil
	a.phase = fresh
	a.sys.stats.Restarts.Add(1)
	return true
}

// conclude ends the last instance. Runner only.
func (a *core) conclude(cause error) {
	a.body.stopped(cause)
	a.settleOwed(errors.Join(ErrNoReply, a.unhandledCause()))
	a.clear()
	a.cause = cause
	a.phase = over
}

// clear drops the resources of the instance. Runner only.
func (a *core) clear() {
	a.cancel()
	a.watches.Store(false)
	a.stopTimers()
	a.stopConnects()
	a.links, a.outboxes, a.children = nil, nil, nil
}

// finish ends the actor; its mailbox is shut and empty. Runner only.
func (a *core) finish() {
	if a.parentOf == nil { // before close(gone): a waiter for the end finds the notice
		a.notify(a.cause, false, 0)
	}
	a.word.end()
	a.sweep()
	close(a.gone)
	if a.parentOf != nil { // after close(gone): a parent ends after its children
		a.notify(a.cause, false, 0)
	}
	a.sys.ended(a)
}
