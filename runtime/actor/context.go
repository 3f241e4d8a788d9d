package actor

import (
	"context"
	"time"
)

// Context gives a handler access to its actor. It is valid until the handler's method returns, and
// only on the goroutine of that method. As a context.Context it may also be used on goroutines that
// the method waits for. It ends when StopNow is called or the context of System.Close ends, also while
// the method runs; when a failure begins to end the instance; and at the latest after Stopped. So a
// method that waits should do so with its Context. If StopNow, Close or a failure has ended it,
// context.Cause returns ErrStopped or the failure.
type Context[M any] struct{ cell *cell[M] }

var _ context.Context = (*Context[int])(nil)

// Self returns the actor's Ref.
func (c *Context[M]) Self() Ref[M] { return Ref[M]{c.cell} }

// System returns the actor's system.
func (c *Context[M]) System() *System { return c.cell.sys }

// Stop stops the actor, as Ref.Stop does. The running method continues.
func (c *Context[M]) Stop() { c.cell.requestStop(stopDrain) }

// Stopping reports whether Stop or StopNow was called for the actor.
func (c *Context[M]) Stopping() bool { return c.cell.stop.Load() != stopNot }

// Children returns the number of children that have not ended.
func (c *Context[M]) Children() int { return len(c.cell.children) }

// Operations returns the number of outstanding operations, including calls of Dial and Accept.
func (c *Context[M]) Operations() int { return c.cell.operations() }

// parent implements Parent.
func (c *Context[M]) parent() (*System, *core) { return c.cell.sys, &c.cell.core }

// Deadline implements context.Context. There is no deadline.
func (c *Context[M]) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *Context[M]) Done() <-chan struct{} { return c.cell.life.Load().Done() }

// Err implements context.Context.
func (c *Context[M]) Err() error { return c.cell.life.Load().Err() }

// Value implements context.Context. Through it Tell recognizes a handler.
func (c *Context[M]) Value(key any) any {
	if key == (insideKey{}) {
		return c.cell.sys
	}
	return c.cell.life.Load().Value(key)
}
