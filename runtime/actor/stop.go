package actor

import (
	"errors"

	"github.com/verbena-rdma/verbena/runtime/internal/seam"
)

// applyStop carries out a request of Stop or StopNow. Runner only.
func (a *core) applyStop(how uint32) {
	// requestStop sets the request and then shuts the mailbox. The goroutine in requestStop may be
	// delayed between these two steps. Without the following call, the actor could then empty the
	// open mailbox and end, and still get messages.
	a.body.shut()
	switch a.phase {
	case fresh: // there is no instance yet
		if how == stopNow {
			a.windDown(ErrStopped, false)
		}
		// After stopDrain the actor still begins, and then drains and parts.
	case up:
		if how == stopNow {
			a.windDown(ErrStopped, false)
			return
		}
		a.drain()
	case draining, parting:
		a.windDown(ErrStopped, false) // how is stopNow: it is stricter than the request that began this phase
	case windingUp:
		a.restart = false
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

// part continues a graceful stop when nothing is left to handle. It returns false if the stop must
// wait. Runner only.
func (a *core) part() bool {
	if a.body.pending() > 0 {
		return false // a message is being pushed; its Tell then wakes the actor
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

// operations returns the number of outstanding operations. It does not count the events that wait for
// messages of owned connections: they are outstanding until the connection ends. Runner only.
func (a *core) operations() int { return a.outstanding - a.listening }

// windDown begins to wind up the instance, after StopNow or a failure. Runner only.
func (a *core) windDown(cause error, restart bool) {
	a.phase, a.cause, a.restart = windingUp, cause, restart
	if !restart {
		a.body.shut()
	}
	a.watches.Store(false)
	a.stopTimers()
	a.stopConnects()
	a.endLife(cause)
	for _, l := range a.links {
		l.conn.Abort()
	}
	for c := range a.children {
		c.requestStop(stopNow)
	}
}

// windUp takes one step of phase windingUp. It returns false if there is nothing to do until the next
// call of wake. Runner only.
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

// unhandledCause returns the error for messages and events that the actor will not handle. It is
// ErrStopped, joined with the failure that ended the actor if there was one. Runner only.
func (a *core) unhandledCause() error {
	if a.cause == nil || errors.Is(a.cause, ErrStopped) {
		return ErrStopped
	}
	return errors.Join(ErrStopped, a.cause)
}

// revive ends phase resting; the next step makes the next instance. Runner only.
func (a *core) revive() bool {
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
	a.endLife(nil)
	a.watches.Store(false)
	a.stopTimers()
	a.stopConnects()
	a.links, a.outboxes, a.children = nil, nil, nil
}

// finish ends the actor, whose mailbox is shut and empty. Runner only.
func (a *core) finish() {
	if a.parentOf == nil { // before close(gone): when Done is closed, Config.Notice has returned
		a.notify(a.cause, false, 0)
	}
	a.word.end()
	a.sweep()
	close(a.gone)
	if a.parentOf != nil { // after close(gone): the Done of a child is closed before that of its parent
		a.notify(a.cause, false, 0)
	}
	a.sys.ended(a)
}
