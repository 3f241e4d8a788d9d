package reactor

import (
	"context"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// loopTasks holds work that only the loop does: functions that need the turn, and the events of watched sources and,
// unless passesOn, of the completion channel. (Reactor.timers holds the timers.)
type loopTasks struct {
	calls ring.Inbox[call, *call]
	// handlers maps each key of the poller to the function that takes the events: takeChannelEvents
	// for the completion channel, and the function given to Watch for a watched source. Only the
	// holder calls these functions.
	handlers map[uint32]func()
	sources  []eventSource
	// The next three fields hold the progress of one call of runLoopTasks. They are updated before
	// each call of a function. So if the function panics or ends its goroutine, runWoken goes on with
	// the next function.
	wokenKeys []uint32 // the keys of the handlers to call
	called    int      // how many of these handlers were called
	leftCalls *call    // the queued functions that were not called yet
	// suspended holds, by key, the sources that are not polled at present (loop_suspend.go).
	suspended map[uint32]verbs.Source
}

// call is one function queued for the loop.
type call struct {
	hook ring.Hook[call]
	fn   func()
	done chan struct{} // closed when fn has ended; nil: no goroutine waits
}

// InboxHook links the call.
func (c *call) InboxHook() *ring.Hook[call] { return &c.hook }

func (e *loopTasks) init(r *Reactor) {
	e.handlers = map[uint32]func(){keyCompletions: r.takeChannelEvents}
}

// needsLoop reports whether there is work that only the loop does.
func (r *Reactor) needsLoop() bool {
	return !r.calls.Empty() || r.cfg.Stepped && !r.callbacks.Empty() || r.hasEvents() || r.timers.due(r.cfg.Now)
}

// hasEvents reports whether a watched source or the completion channel may have events. For a
// stepped reactor it reports whether any source is watched, because every Step calls the handlers of
// all sources.
func (r *Reactor) hasEvents() bool {
	if r.cfg.Stepped {
		return len(r.sources) > 0
	}
	return r.sleep.Ready()
}

// runLoopTasks runs the loop tasks in this order: the handlers of events, the timers that are due,
// the queued functions in the order of arrival. The handlers come first, because they may settle
// futures that goroutines await. In a stepped reactor with queued callbacks, runLoopTasks returns
// runCallbacks. The caller of runLoopTasks first gives up the turn and then calls runCallbacks.
func (r *Reactor) runLoopTasks() (after func()) {
	r.wokenKeys, r.called = r.wokenKeys[:0], 0
	if r.cfg.Stepped {
		for _, w := range r.sources {
			r.wokenKeys = append(r.wokenKeys, w.key)
		}
	} else {
		r.wokenKeys = append(r.wokenKeys, r.sleep.Take()...)
	}
	r.runUserCode(r.runFn)
	if r.cfg.Stepped && !r.callbacks.Empty() {
		return r.runCallbacks
	}
	return nil
}

// runWoken calls the functions that runLoopTasks has to call. If a function panics or ends its
// goroutine, runUserCode calls runWoken again for the remaining functions.
func (r *Reactor) runWoken() {
	for r.called < len(r.wokenKeys) {
		fn := r.handlers[r.wokenKeys[r.called]]
		r.called++
		if fn != nil { // nil if an earlier handler has called Unwatch
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

// Defer queues fn; the loop runs it soon, with the turn held. Defer allocates. Any goroutine may
// call Defer, the holder too.
func (r *Reactor) Defer(fn func()) {
	r.calls.Push(&call{fn: fn})
	r.tok.Submitted()
	r.afterClose()
}

// afterClose is called after a function or a task was pushed. If Close has set r.closed, afterClose
// starts a goroutine that runs all pushed functions and tasks, because the loop may have ended.
func (r *Reactor) afterClose() {
	if r.closed.Load() && !r.cfg.Stepped {
		go r.runLeft()
	}
}

// runLeft runs the functions and tasks that the loop did not run before it ended. withTurn sets
// inUserCode, and therefore runUserCode runs the functions on another goroutine. So a function that
// calls Goexit does not end the caller's goroutine, which may be in Close.
func (r *Reactor) runLeft() {
	r.withTurn(func() {
		r.runUserCode(func() {
			r.runCalls()
			r.runTasks()
		})
	})
}

// Do queues fn, which the loop runs with the turn held, and waits until fn has ended. If ctx ends
// earlier, Do returns the context's error, and fn still runs. If the reactor is stepped, Do itself
// runs fn, on the calling goroutine, unless ctx has ended. The holder must not call Do.
// Errors: the context's error, ErrClosed after Close, ErrNilContext.
func (r *Reactor) Do(ctx context.Context, fn func()) error {
	w, err := DoneOf(ctx)
	if err != nil {
		return err
	}
	if r.closed.Load() {
		return ErrClosed
	}
	if r.cfg.Stepped {
		if err := w.Err(); err != nil {
			return w.Cause(ctx, err)
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
		return w.Cause(ctx, errContextDone)
	}
}
