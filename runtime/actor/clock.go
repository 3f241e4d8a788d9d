package actor

import "time"

// Clock is the clock of timers and restarts. A *verbena.Runtime is a Clock.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// After calls fn one time, when the duration d has passed, on any goroutine. The function fn
	// does not block. The function stop cancels the call of fn and does not wait. A call that has
	// begun, or is about to begin, is not canceled.
	After(d time.Duration, fn func()) (stop func())
}

// wall is the machine's clock.
type wall struct{}

func (wall) Now() time.Time { return time.Now() }

func (wall) After(d time.Duration, fn func()) (stop func()) {
	t := time.AfterFunc(d, fn)
	return func() { t.Stop() }
}
