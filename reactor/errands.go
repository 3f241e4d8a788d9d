package reactor

import (
	"context"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// errands are what only the loop does: functions that want the turn, user
// callbacks that must not have it, events of channels, timers that are due.
type errands struct {
	r         *Reactor
	calls     ring.Inbox[call, *call] // run holding the turn
	callbacks ring.Inbox[call, *call] // run without it
	// handlers are by poller key and run holding the turn, as are sources.
	handlers map[uint32]func()
	sources  []watchedSource
	runAfter func() // runCallbacks, made once
}

// call is one function on its way to the loop.
type call struct {
	hook ring.Hook[call]
	fn   func()
	done chan struct{} // nil: nobody waits
}

// InboxHook links the call.
func (c *call) InboxHook() *ring.Hook[call] { return &c.hook }

func (e *errands) init(r *Reactor) {
	e.r = r
	e.runAfter = e.runCallbacks
	e.handlers = map[uint32]func(){keyCompletions: r.takeEvents}
}

func (e *errands) waiting() bool { return !e.calls.Empty() || !e.callbacks.Empty() }

// Errands implements turn.Work.
func (r *Reactor) Errands() bool {
	return r.errands.waiting() || r.eventful() || r.timers.due(r.cfg.Now)
}

// eventful tells whether a channel may have events. A stepped reactor asks its
// channels every Step.
func (r *Reactor) eventful() bool {
	if r.cfg.Stepped {
		return len(r.sources) > 0
	}
	return r.sleep.Ready()
}

// Run implements turn.Work: events first, because they may settle what others
// wait for; then timers; then functions in the order they came.
func (r *Reactor) Run() (after func()) {
	if r.cfg.Stepped {
		for _, w := range r.sources {
			r.handlers[w.key]()
		}
	} else {
		for _, key := range r.sleep.Take() {
			if fn := r.handlers[key]; fn != nil {
				fn()
			}
		}
	}
	r.timers.run(r.cfg.Now)
	for c := r.calls.TakeAll(); c != nil; {
		next := c.hook.Unlink()
		c.run()
		c = next
	}
	if !r.callbacks.Empty() {
		return r.runAfter
	}
	return nil
}

func (c *call) run() {
	if c.done != nil {
		defer close(c.done)
	}
	c.fn()
}

func (e *errands) runCallbacks() {
	for c := e.callbacks.TakeAll(); c != nil; {
		next := c.hook.Unlink()
		c.fn()
		c = next
	}
}

// Callback queues user code for the reactor's goroutine, where it runs without
// the turn and should not block for long. It allocates. Any goroutine.
func (r *Reactor) Callback(fn func()) {
	r.callbacks.Push(&call{fn: fn})
	r.tok.Submitted()
}

// Defer queues fn to run holding the turn, soon. It allocates. Any goroutine,
// the turn's too. After Close it is run by nobody.
func (r *Reactor) Defer(fn func()) {
	r.calls.Push(&call{fn: fn})
	r.tok.Submitted()
}

// Do runs fn holding the turn and waits for it. When ctx ends first fn still
// runs, later. Not from the turn; a stepped reactor needs somebody who steps.
// ErrClosed after Close.
func (r *Reactor) Do(ctx context.Context, fn func()) error {
	if r.cfg.Stepped {
		r.tok.WithTurn(fn)
		return nil
	}
	c := &call{fn: fn, done: make(chan struct{})}
	r.calls.Push(c)
	r.tok.Submitted()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.done:
		select {
		case <-c.done:
			return nil
		default:
			return ErrClosed
		}
	}
}
