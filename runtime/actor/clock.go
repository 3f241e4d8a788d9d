package actor

import "time"

// Clock is the time source of timers and restarts. A *verbena.Runtime is a Clock: its reactors keep
// the time.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// After calls fn one time, d from now, on any goroutine; fn does not block. The function stop
	// prevents the call of fn if that has not begun, and does not wait for it otherwise.
	After(d time.Duration, fn func()) (stop func())
}

// wall is the machine's clock.
type wall struct{}

func (wall) Now() time.Time { return time.Now() }

func (wall) After(d time.Duration, fn func()) (stop func()) {
	t := time.AfterFunc(d, fn)
	return func() { t.Stop() }
}
