package runtime

import "sync/atomic"

// cause is the first reason why something ended, and none before.
type cause struct {
	// err is set once, by whoever ends it; it publishes the error. Read on the way of
	// every operation.
	err atomic.Pointer[error]
}

// Load is the reason; nil for none. It does not block; any goroutine.
func (c *cause) Load() error {
	if p := c.err.Load(); p != nil {
		return *p
	}
	return nil
}

// set makes err the reason, unless there is one; it tells whether it did.
func (c *cause) set(err error) bool { return c.err.CompareAndSwap(nil, &err) }
