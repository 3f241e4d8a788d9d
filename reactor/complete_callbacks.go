package reactor

import "github.com/verbena-rdma/verbena/internal/ring"

// callbacks runs user code on a goroutine of its own, the reactor's callback goroutine. A function
// that blocks or awaits delays other callbacks, but neither completions nor events. Functions run
// in order, one at a time. A panic is reported or raised (complete_panic.go). If a function ends
// the goroutine, another goroutine runs the remaining functions.
type callbacks struct {
	queue ring.Inbox[call, *call]
	// wake holds a value if there may be functions in the queue. Closing stop ends the goroutine,
	// which then closes ended.
	wake, stop, ended chan struct{}
}

func (cb *callbacks) Empty() bool { return cb.queue.Empty() }

func (r *Reactor) startCallbacks() {
	cb := &r.callbacks
	cb.wake, cb.stop, cb.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go r.serveCallbacks()
}

// serveCallbacks is the callback goroutine. It starts a new one if user code ends it.
func (r *Reactor) serveCallbacks() {
	returned := false
	defer func() {
		if !returned {
			go r.serveCallbacks()
		}
	}()
	for {
		select {
		case <-r.callbacks.wake:
			r.runCallbacks()
		case <-r.callbacks.stop:
			r.runCallbacks()
			returned = true
			close(r.callbacks.ended)
			return
		}
	}
}

// runCallbacks calls all queued functions in order.
func (r *Reactor) runCallbacks() { r.callAll(r.callbacks.queue.TakeAll()) }

// callAll calls c and the functions queued after it. If one of them ends this goroutine, callAll
// waits until another goroutine has called the remaining ones.
func (r *Reactor) callAll(c *call) {
	defer func() {
		if c != nil {
			rest := c
			onOwnGoroutine(func() { r.callAll(rest) })
		}
	}()
	for c != nil {
		r.callSome(&c)
	}
}

// callSome calls the functions of the list *left in order. It stops after the first that panics. It
// is separate from callAll for the reason given at recoverPanic.
func (r *Reactor) callSome(left **call) {
	defer func() {
		if v := recover(); v != nil {
			_ = Recovered(v, r.cfg.OnPanic) // already reported
		}
	}()
	for c := *left; c != nil; c = *left {
		*left = c.hook.Unlink() // before the call: fn may queue c again
		c.fn()
	}
}

// Callback has the reactor's callback goroutine call fn, which is user code, without the turn. fn
// may use the reactor, but must not close it. fn may block, but delays other callbacks. A panic
// goes to Config.OnPanic, or ends the program. Callback allocates. Any goroutine may call it. A
// stepped reactor calls fn in Step.
func (r *Reactor) Callback(fn func()) { r.callback(&call{fn: fn}) }

// Job is a function for the callback goroutine that can be queued many times without an allocation.
// It must not be in the queue two times: call Queue again only after the function has begun to run.
type Job struct{ call call }

// NewJob makes a job that runs fn as Callback does.
func NewJob(fn func()) *Job { return &Job{call{fn: fn}} }

// Queue queues j for the callback goroutine, as Callback does. It does not block or allocate. Any
// goroutine may call it.
func (r *Reactor) Queue(j *Job) { r.callback(&j.call) }

func (r *Reactor) callback(c *call) {
	first := r.callbacks.queue.Push(c)
	switch {
	case r.cfg.Stepped:
		r.tok.Submitted()
	case first:
		select {
		case r.callbacks.wake <- struct{}{}:
		default: // the channel holds a value already
		}
	}
	if r.closed.Load() && !r.cfg.Stepped {
		select {
		case <-r.callbacks.ended:
			go r.runCallbacks()
		default:
		}
	}
}
