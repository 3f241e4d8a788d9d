package actor

import (
	"errors"

	"github.com/verbena-rdma/verbena/runtime/internal/seam"
)

// heed begins what Stop or StopNow asked for. Runner only.
func (a *core) heed(how uint32) {
	// Who asked does it too, after raising the request; but that goroutine may stand still
	// between the two, while the actor drains an open mailbox, ends, and is told more.
	a.body.shut()
	switch a.phase {
	case fresh: // never started: nothing to end, but what it was sent
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
		a.windDown(ErrStopped, false) // only stopNow is more than what was heeded
	case windingUp:
		a.restart = false // it does not come back
	case resting:
		if a.wakeUp != nil {
			a.wakeUp()
		}
		a.phase = windingUp
		a.restart = false
	}
}

// drain begins a gentle stop. Runner only.
func (a *core) drain() {
	a.phase = draining
	a.stopTimers()
	a.stopSeeking()
}

// part goes on with a gentle stop when nothing is left to handle: false if it has
// to wait for something. Runner only.
func (a *core) part() bool {
	if a.body.pending() > 0 {
		return false // a Tell is half-way, and wakes us
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
	if a.underWay > 0 || len(a.children) > 0 {
		return false
	}
	a.conclude(nil)
	return true
}

// operations is what is under way but for own connections, which end only when
// they are told. Runner only.
func (a *core) operations() int { return a.underWay - a.listening }

// windDown ends what the instance has, hard. Runner only.
func (a *core) windDown(cause error, restart bool) {
	a.phase, a.cause, a.restart = windingUp, cause, restart
	if !restart {
		a.body.shut()
	}
	a.watches.Store(false)
	a.stopTimers()
	a.stopSeeking()
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

// windUp throws away what still comes, and tells whether it did something.
// Runner only.
func (a *core) windUp() bool {
	if e := a.events.pop(); e != nil {
		a.discard(e)
		return true
	}
	if !a.restart && a.body.report(a.unhandledCause()) {
		return true
	}
	if a.underWay > 0 || len(a.children) > 0 || !a.restart && a.body.pending() > 0 {
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

// unhandledCause is what is said of messages that an actor leaves: ErrStopped, and
// the failure that it ended with. Runner only.
func (a *core) unhandledCause() error {
	if a.cause == nil || errors.Is(a.cause, ErrStopped) {
		return ErrStopped
	}
	return errors.Join(ErrStopped, a.cause)
}

// revive begins the next instance. Runner only.
func (a *core) revive() bool {
	a.due.Store(false)
	a.wakeUp = nil
	a.restart = false
	a.cause = nil
	a.phase = fresh
	a.sys.stats.Restarts.Add(1)
	return true
}

// conclude is the end of the last instance. Runner only.
func (a *core) conclude(cause error) {
	a.body.stopped(cause)
	a.settleOwed(errors.Join(ErrNoReply, a.unhandledCause()))
	a.clear()
	a.cause = cause
	a.phase = over
}

// clear forgets what the instance had. Runner only.
func (a *core) clear() {
	a.cancel()
	a.watches.Store(false)
	a.stopTimers()
	a.stopSeeking()
	a.links, a.outboxes, a.children = nil, nil, nil
}

// finish is the last thing that the runner does; the mailbox is shut and empty.
func (a *core) finish() {
	if a.parentOf == nil { // who waits for the end finds the notice there
		a.notify(a.cause, false, 0)
	}
	a.word.end()
	a.sweep()
	close(a.gone)
	if a.parentOf != nil { // a parent ends after its children
		a.notify(a.cause, false, 0)
	}
	a.sys.ended(a)
}
