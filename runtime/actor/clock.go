package actor

import "time"

// Clock is what timers and restarts go by. A *verbena.Runtime is one: its
// reactors keep the time.
type Clock interface {
	// Now is the time.
	Now() time.Time
	// After calls fn once, d from now, on any goroutine; fn does not block. stop
	// keeps that from happening if it has not begun; it does not wait.
	After(d time.Duration, fn func()) (stop func())
}

// wall is the machine's clock.
type wall struct{}

func (wall) Now() time.Time { return time.Now() }

func (wall) After(d time.Duration, fn func()) (stop func()) {
	t := time.AfterFunc(d, fn)
	return func() { t.Stop() }
}
