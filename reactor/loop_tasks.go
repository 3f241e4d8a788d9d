package reactor

import (
	"context"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// loopTasks are what only the loop does: functions that want the turn, events of
// channels, timers that are due.
type loopTasks struct {
	calls ring.Inbox[call, *call]
	// handlers are by poller key and run holding the turn, as are sources.
	handlers map[uint32]func()
	sources  []eventSource
	// wokenKeys lists the handlers that this runLoopTasks calls, by key; called counts those it has
	// called. left lists the functions that it has not called yet. It counts each before
	// it calls it: if one does not return, it goes on with the next.
	wokenKeys []uint32
	called    int
	leftCalls *call
	// suspended are the sources that are not listened to for a moment, by key.
	suspended map[uint32]verbs.Source
}

// call is one function on its way to the loop.
type call struct {
	hook ring.Hook[call]
	fn   func()
	done chan struct{} // nil: nobody waits
}

// InboxHook links the call.
func (c *call) InboxHook() *ring.Hook[call] { return &c.hook }

func (e *loopTasks) init(r *Reactor) {
	e.handlers = map[uint32]func(){keyCompletions: r.takeChannelEvents}
}

// needsLoop reports whether something waits that only the loop does.
func (r *Reactor) needsLoop() bool {
	return !r.calls.Empty() || r.cfg.Stepped && !r.callbacks.Empty() || r.hasEvents() || r.timers.due(r.cfg.Now)
}

// hasEvents tells whether a channel may have events. A stepped reactor asks its
// channels every Step.
func (r *Reactor) hasEvents() bool {
	if r.cfg.Stepped {
		return len(r.sources) > 0
	}
	return r.sleep.Ready()
}

// runLoopTasks does them: events first, because they may settle what others
// wait for; then timers; then functions in the order they came.
func (r *Reactor) runLoopTasks() (after func()) {
	r.wokenKeys, r.called = r.wokenKeys[:0], 0
	if r.cfg.Stepped {
		for _, w := range r.sources {
			r.wokenKeys = append(r.wokenKeys, w.key)
		}
	} else {
		r.wokenKeys = append(r.wokenKeys, r.sleep.Take()...)
	}
	r.attend(r.runFn)
	if r.cfg.Stepped && !r.callbacks.Empty() {
		return r.runCallbacks
	}
	return nil
}

// runWoken is the part of runLoopTasks that may be called again when a function has not returned.
func (r *Reactor) runWoken() {
	for r.called < len(r.wokenKeys) {
		fn := r.handlers[r.wokenKeys[r.called]]
		r.called++
		if fn != nil { // else another has ended its watch
			fn()
		}
	}
	r.timers.run(r.cfg.Now)
	r.runCalls()
}

func (r *Reactor) runCalls() {
	if r.leftCalls == nil {
		r.leftCalls = r.calls.TakeAll()
	}
	for c := r.leftCalls; c != nil; c = r.leftCalls {
		r.leftCalls = c.hook.Unlink()
		c.run()
	}
}

func (c *call) run() {
	if c.done != nil {
		defer close(c.done)
	}
	c.fn()
}

// Defer queues fn to run holding the turn, soon. It allocates. Any goroutine,
// the turn's too.
func (r *Reactor) Defer(fn func()) {
	r.calls.Push(&call{fn: fn})
	r.tok.Submitted()
	r.afterClose()
}

// afterClose sees to what is pushed when the loop is gone, or going: somebody
// may wait for it.
func (r *Reactor) afterClose() {
	if r.closed.Load() && !r.cfg.Stepped {
		go r.runLeft()
	}
}

// runLeft runs the calls and tasks that were pushed after the loop ended. Goexit in one
// of them does not end this goroutine, which may be the one that called Close.
func (r *Reactor) runLeft() {
	r.withTurn(func() {
		r.attend(func() {
			r.runCalls()
			r.runTasks()
		})
	})
}

// Do runs fn holding the turn and waits for it. When ctx ends first fn still
// runs, later. Not from the turn. ErrClosed after Close, ErrNilContext. In a stepped
// reactor it runs fn at once, on this goroutine.
func (r *Reactor) Do(ctx context.Context, fn func()) error {
	w, err := Ask(ctx)
	if err != nil {
		return err
	}
	if r.closed.Load() {
		return ErrClosed
	}
	if r.cfg.Stepped {
		if err := w.Err(); err != nil {
			return w.Why(ctx, err)
		}
		r.withTurn(fn)
		return nil
	}
	c := &call{fn: fn, done: make(chan struct{})}
	r.calls.Push(c)
	r.tok.Submitted()
	r.afterClose()
	select {
	case <-c.done:
		return nil
	case <-w:
		return w.Why(ctx, errGivenUp)
	}
}
