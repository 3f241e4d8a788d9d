package actor

import "time"

// TimerID identifies a timer of an instance. No timer has the zero TimerID.
type TimerID uint64

// timer is one timer. Runner only.
type timer struct {
	id    TimerID
	every time.Duration // the interval; 0 for a timer of After
	e     event         // the clock pushes it one time after each call of arm
	stop  func()        // cancels the push
}

// After schedules one call of the method Timer (see Timed) with tag, when at least d has passed. If
// the actor is stopping, After schedules nothing and returns 0. After allocates.
func (c *Context[M]) After(d time.Duration, tag uint64) TimerID {
	return c.cell.addTimer(d, 0, tag)
}

// Every schedules repeated calls of Timer with tag. Each call comes d after the previous call has
// returned, so calls do not pile up behind a slow handler. If d is 0 or less, one nanosecond is used.
// Otherwise Every is like After.
func (c *Context[M]) Every(d time.Duration, tag uint64) TimerID {
	d = max(d, 1)
	return c.cell.addTimer(d, d, tag)
}

// Cancel cancels a timer: Timer is no longer called for it, even if it is due. Cancel returns false
// if the timer was canceled before, or if it is a timer of After and Timer was called.
func (c *Context[M]) Cancel(id TimerID) bool {
	a := &c.cell.core
	t := a.timers[id]
	if t == nil {
		return false
	}
	delete(a.timers, id)
	t.stop()
	return true
}

// addTimer starts a timer. If the actor is stopping, it returns 0 instead. Runner only.
func (a *core) addTimer(d, every time.Duration, tag uint64) TimerID {
	if !a.open() {
		return 0
	}
	a.lastID++
	t := &timer{id: a.lastID, every: every}
	t.e = event{a: a, kind: evTimer, tag: tag, timer: t}
	if a.timers == nil {
		a.timers = map[TimerID]*timer{}
	}
	a.timers[t.id] = t
	a.arm(t, d)
	return t.id
}

func (a *core) arm(t *timer, d time.Duration) {
	t.stop = a.sys.cfg.Clock.After(d, func() { a.push(&t.e) })
}

// timerEvent handles a timer that is due, unless it was canceled. Runner only.
func (a *core) timerEvent(e *event) {
	t := e.timer
	if a.timers[t.id] != t {
		return
	}
	if t.every == 0 {
		delete(a.timers, t.id)
	}
	a.dispatch(e)
	if a.timers[t.id] == t {
		a.arm(t, t.every)
	}
}

// stopTimers cancels all timers, including those already due. Runner only.
func (a *core) stopTimers() {
	for _, t := range a.timers {
		t.stop()
	}
	a.timers = nil
}
