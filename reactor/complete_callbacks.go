package reactor

import "github.com/verbena-rdma/verbena/internal/ring"

// callbacks is the queue of the user functions that the reactor's callback goroutine calls.
// The goroutine calls one function at a time, in the order of the queue. A function that blocks
// delays the other functions of the queue, but neither completions nor events. A panic goes to
// Config.OnPanic, or ends the program (complete_panic.go). If a function ends the goroutine, another
// goroutine calls the remaining functions. A stepped reactor has no callback goroutine: Step calls
// the functions.
type callbacks struct {
	queue ring.Inbox[call, *call]
	// The callback goroutine uses these channels:
	//
	//	wake   holds a value if functions may be queued
	//	stop   Close closes it; the goroutine then calls the queued functions and returns
	//	ended  the goroutine closes it when it returns because of stop
	wake, stop, ended chan struct{}
}

func (cb *callbacks) Empty() bool { return cb.queue.Empty() }

func (r *Reactor) startCallbacks() {
	cb := &r.callbacks
	cb.wake, cb.stop, cb.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go r.serveCallbacks()
}

// serveCallbacks runs on the callback goroutine. If user code ends this goroutine, serveCallbacks
// starts a new one.
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

// callAll calls the functions of the list c in order. If a function ends the calling goroutine,
// callAll calls the remaining functions on another goroutine, and waits for that goroutine.
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

// callSome removes functions from the list *left and calls them in order, until a function panics or
// the list is empty. callSome is separate from callAll for the reason given at recoverPanic
// (complete_attend.go).
func (r *Reactor) callSome(left **call) {
	defer func() {
		if v := recover(); v != nil {
			_ = Recovered(v, r.cfg.OnPanic) // Recovered reports the panic; a panic of a callback fails no queue
		}
	}()
	for c := *left; c != nil; c = *left {
		*left = c.hook.Unlink() // before the call: fn may queue c again
		c.fn()
	}
}

// Callback queues fn for the reactor's callback goroutine, which calls fn without the turn. fn is
// user code: it may use the reactor, but must not close it. If fn blocks, it delays other
// callbacks. A panic of fn goes to Config.OnPanic, or ends the program. Callback allocates. Any
// goroutine may call Callback. A stepped reactor calls fn in Step.
func (r *Reactor) Callback(fn func()) { r.callback(&call{fn: fn}) }

// Job is a function for the callback goroutine that can be queued many times without an allocation.
// A Job must not be in the queue twice: pass the Job to Reactor.Queue again only after the Job's
// function has begun to run.
type Job struct{ call call }

// NewJob makes a Job that calls fn.
func NewJob(fn func()) *Job { return &Job{call{fn: fn}} }

// Queue queues the function of j as Callback does. Queue does not block or allocate. Any goroutine
// may call Queue.
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
