package actor

import (
	"context"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/ring"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// envelope is a message in a mailbox.
type envelope[M any] struct {
	m   M
	ask owed // the reply that the message requests, or nil
}

// cell is an actor: its core and the part that depends on the type of its messages.
type cell[M any] struct {
	core
	box  *ring.MPSC[envelope[M]]
	room *room // nil unless Overflow is Wait
	next func() Handler[M]
	ctx  Context[M]
	// lastAsks is the *asks of the last Ask of this actor. Most actors give answers of one type. Any
	// goroutine writes and reads it; it publishes only what System.asks has published.
	lastAsks atomic.Pointer[any]

	// Only the runner uses the fields below. The field handler is the instance, or nil if there is
	// none. The next three fields are the same instance, or nil if it lacks the interface.
	handler   Handler[M]
	completer Completer[M]
	connector Connector[M]
	timed     Timed[M]
	started   bool // Started has succeeded, or the handler has no method Started
	// While busy is true, handling is the message that the handler handles.
	handling envelope[M]
	busy     bool
}

// tell puts a message into the mailbox. Any goroutine may call it. If tell returns an error, the
// caller must settle e.ask.
func (c *cell[M]) tell(ctx context.Context, e *envelope[M]) error {
	if ctx == nil {
		return verbena.ErrNilContext
	}
	pushed := ring.Full
	model.Yield("tell")
	if c.room == nil || !c.room.overtaken.Load() {
		pushed = c.box.Push(e)
	}
	if pushed == ring.Full && c.room != nil {
		var err error
		if pushed, err = c.pushLater(ctx, e); err != nil {
			return err
		}
	}
	switch pushed {
	case ring.Pushed:
		c.wake()
		return nil
	case ring.Closed:
		return ErrStopped
	}
	if c.opt.Overflow == Drop {
		c.sys.stats.Dropped.Add(1)
		c.deadLetter(e.m, ErrMailboxFull)
		if e.ask != nil {
			e.ask.fail(ErrMailboxFull)
			e.ask.free()
		}
		return nil
	}
	return ErrMailboxFull
}

// make implements body.
func (c *cell[M]) make() error {
	h := c.next()
	c.handler = h
	c.completer, _ = h.(Completer[M])
	c.connector, _ = h.(Connector[M])
	c.timed, _ = h.(Timed[M])
	if s, ok := h.(Starter[M]); ok {
		if err := s.Started(&c.ctx); err != nil {
			return err
		}
	}
	c.started = true
	return nil
}

// receive implements body.
func (c *cell[M]) receive() (some bool) {
	for c.take(&c.handling) {
		if some {
			c.left--
		}
		some, c.busy = true, true
		c.handler.Receive(&c.ctx, c.handling.m)
		c.busy = false
		if c.handling.ask != nil {
			c.owe(c.handling.ask)
		}
		if c.left <= 1 || c.mustLook() {
			break
		}
	}
	c.handling = envelope[M]{} // what it refers to may be freed
	return some
}

// take moves the oldest message to e. It returns false if there was none.
func (c *cell[M]) take(e *envelope[M]) bool {
	if !c.box.Pop(e) {
		return false
	}
	model.Yield("popped")
	if c.room != nil && c.room.wanted.Load() {
		c.room.wake()
	}
	return true
}

// handle implements body.
func (c *cell[M]) handle(e *event) bool {
	switch e.kind {
	case evCompletion:
		if c.completer == nil {
			return e.err == nil // a failed operation is reported, because no method handles it
		}
		c.completer.Completed(&c.ctx, e.completion())
	case evMessage, evConn:
		if c.connector == nil {
			return false
		}
		c.connector.Connection(&c.ctx, e.connEvent())
	case evTimer:
		if c.timed == nil {
			return false
		}
		c.timed.Timer(&c.ctx, e.tag)
	case evDevice:
		if h, ok := c.handler.(DeviceWatcher[M]); ok {
			h.Device(&c.ctx, e.device)
		}
	case evChild:
		if h, ok := c.handler.(Supervisor[M]); ok {
			h.Child(&c.ctx, e.notice)
		}
	}
	return true
}

// stopped implements body. A panic in Stopped is counted and reported to the parent. It has no other
// effect, because the instance has already ended.
func (c *cell[M]) stopped(cause error) {
	h, started := c.handler, c.started
	c.handler, c.completer, c.connector, c.timed, c.started = nil, nil, nil, nil, false
	s, ok := h.(Stopper[M])
	if !ok || !started {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.sys.stats.Failures.Add(1)
			c.notify(panicked(v), true, 0)
		}
	}()
	s.Stopped(&c.ctx, cause)
}

// interrupted implements body.
func (c *cell[M]) interrupted(cause error) {
	if !c.busy {
		return
	}
	e := c.handling
	c.handling, c.busy = envelope[M]{}, false
	c.lose(e, cause)
}

// lose reports a message as a dead letter, and fails its Ask.
func (c *cell[M]) lose(e envelope[M], cause error) {
	c.deadLetter(e.m, cause)
	if e.ask != nil {
		e.ask.fail(noReply(cause))
		e.ask.free()
	}
}

// report implements body.
func (c *cell[M]) report(cause error) bool {
	var e envelope[M]
	if !c.take(&e) {
		return false
	}
	c.lose(e, cause)
	return true
}

// shut implements body.
func (c *cell[M]) shut() {
	c.box.Close()
	if c.room != nil {
		c.room.wake()
	}
}

// pending implements body.
func (c *cell[M]) pending() int { return c.box.Len() }

// wantsDevice implements body.
func (c *cell[M]) wantsDevice() bool {
	_, ok := c.handler.(DeviceWatcher[M])
	return ok
}
