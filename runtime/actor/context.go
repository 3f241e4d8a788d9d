package actor

import (
	"context"
	"time"
)

// Context is what a handler's methods have besides their message. It is valid
// until the method returns, on its goroutine only. As a context.Context it ends when
// the instance winds down, StopNow and failures included.
type Context[M any] struct{ cell *cell[M] }

var _ context.Context = (*Context[int])(nil)

// Self names the actor.
func (c *Context[M]) Self() Ref[M] { return Ref[M]{c.cell} }

// System is the actor's system.
func (c *Context[M]) System() *System { return c.cell.sys }

// Stop stops the actor itself, as Ref.Stop does; the method goes on.
func (c *Context[M]) Stop() { c.cell.requestStop(stopDrain) }

// Stopping tells whether the actor is to stop.
func (c *Context[M]) Stopping() bool { return c.cell.stop.Load() != stopNot }

// Children is how many children have not ended.
func (c *Context[M]) Children() int { return len(c.cell.children) }

// Operations is how many operations are under way, connections sought included.
func (c *Context[M]) Operations() int { return c.cell.operations() }

// parent implements Parent.
func (c *Context[M]) parent() (*System, *core) { return c.cell.sys, &c.cell.core }

// Deadline implements context.Context: there is none.
func (c *Context[M]) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *Context[M]) Done() <-chan struct{} { return c.cell.life.Done() }

// Err implements context.Context.
func (c *Context[M]) Err() error { return c.cell.life.Err() }

// Value implements context.Context: it shows the actor to Tell.
func (c *Context[M]) Value(key any) any {
	if key == (insideKey{}) {
		return c.cell.sys
	}
	return c.cell.life.Value(key)
}
