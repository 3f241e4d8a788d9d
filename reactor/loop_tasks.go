package reactor

import (
	"context"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// loopTasks holds the work that only the loop does, except the timers: functions that need the
// turn, and events of the completion channel and of watched sources.
type loopTasks struct {
	calls ring.Inbox[call, *call]
	// handlers has a function for each key of the poller: that of the completion channel, and those
	// given to Watch. The holder calls them.
	handlers map[uint32]func()
	sources  []eventSource
	// wokenKeys, called and leftCalls are the progress of one runLoopTasks: the keys of the
	// handlers to call, how many of these were called, and the queued functions still to call. The
	// last two advance before each call: if a function panics or ends its goroutine, runWoken goes
	// on with the next.
	wokenKeys []uint32
	called    int
	leftCalls *call
	// suspended holds, by key, the sources that are not polled at present (loop_suspend.go).
	suspended map[uint32]verbs.Source
}

// call is one function queued for the loop.
type call struct {
	hook ring.Hook[call]
	fn   func()
	done chan struct{} // nil: no goroutine waits
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

// hasEvents reports whether a watched source or the channel may have events. A stepped reactor
// calls the handlers of all sources in every Step.
func (r *Reactor) hasEvents() bool {
	if r.cfg.Stepped {
		return len(r.sources) > 0
	}
	return r.sleep.Ready()
}

// runLoopTasks runs the loop tasks: first the handlers of events, because they may settle futures
// that goroutines await; then timers; then functions in the order of arrival. In a stepped reactor
// it returns a function that runs the callbacks, to be called without the turn.
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

// runWoken is the part of runLoopTasks that is called again after a function has panicked or ended
// its goroutine.
func (r *Reactor) runWoken() {
	for r.called < len(r.wokenKeys) {
		fn := r.handlers[r.wokenKeys[r.called]]
		r.called++
		if fn != nil { // nil if another handler has called Unwatch
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

// Defer has the loop run fn soon, with the turn held. It allocates. Any goroutine may call it, the
// holder too.
func (r *Reactor) Defer(fn func()) {
	r.calls.Push(&call{fn: fn})
	r.tok.Submitted()
	r.afterClose()
}

// afterClose runs, on a new goroutine, the functions and tasks pushed after Close. The loop may
// have ended without running them, and a goroutine may wait for them.
func (r *Reactor) afterClose() {
	if r.closed.Load() && !r.cfg.Stepped {
		go r.runLeft()
	}
}

// runLeft runs the functions and tasks that were pushed after the loop ended. runUserCode runs them
// on another goroutine, because withTurn has set inUserCode. So a Goexit in one of them does not
// end the goroutine of Close.
func (r *Reactor) runLeft() {
	r.withTurn(func() {
		r.runUserCode(func() {
			r.runCalls()
			r.runTasks()
		})
	})
}

// Do has the loop run fn, with the turn held, and waits until fn has ended. If ctx ends first, Do
// returns the context's error, and fn still runs later. The holder must not call Do. Errors: the
// context's, ErrClosed after Close, ErrNilContext. A stepped reactor runs fn at once, on this
// goroutine.
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
