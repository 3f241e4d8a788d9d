package actor

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
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
	room *ring.Credits // one credit for each free place in box; nil unless Overflow is Wait
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
func (c *cell[M]) tell(ctx context.Context, e envelope[M]) error {
	if ctx == nil {
		return verbena.ErrNilContext
	}
	if c.room != nil {
		if err := c.takeRoom(ctx); err != nil {
			return err
		}
	}
	switch c.box.Push(e) {
	case ring.Pushed:
		c.wake()
		return nil
	case ring.Closed:
		if c.room != nil {
			c.room.Release()
		}
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

func (c *cell[M]) takeRoom(ctx context.Context) error {
	if c.room.TryAcquire() {
		return nil
	}
	if inside(ctx) {
		if c.stop.Load() != stopNot {
			return ErrStopped
		}
		return errNoRoomInHandler
	}
	asked, _ := reactor.DoneOf(ctx) // no error: tell has refused a nil context
	err := c.room.Acquire(asked)
	if err == nil {
		return nil
	}
	if errors.Is(err, ring.ErrClosed) {
		return ErrStopped
	}
	return asked.Cause(ctx, asked.Err())
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
func (c *cell[M]) receive() bool {
	e, ok := c.take()
	if !ok {
		return false
	}
	c.handling, c.busy = e, true
	c.handler.Receive(&c.ctx, e.m)
	c.handling, c.busy = envelope[M]{}, false
	if e.ask != nil {
		c.owe(e.ask)
	}
	return true
}

func (c *cell[M]) take() (envelope[M], bool) {
	e, ok := c.box.Pop()
	if ok && c.room != nil {
		c.room.ReleaseLater(roomBatch)
	}
	return e, ok
}

// roomBatch is how many places of the mailbox the runner gives back together, if no Tell waits for one. One
// by one, each place costs both sides a cache miss.
const roomBatch = 32

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
	e, ok := c.take()
	if ok {
		c.lose(e, cause)
	}
	return ok
}

// shut implements body.
func (c *cell[M]) shut() {
	c.box.Close()
	if c.room != nil {
		c.room.Close()
	}
}

// pending implements body.
func (c *cell[M]) pending() int { return c.box.Len() }

// wantsDevice implements body.
func (c *cell[M]) wantsDevice() bool {
	_, ok := c.handler.(DeviceWatcher[M])
	return ok
}
