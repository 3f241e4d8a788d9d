package reactor

import "github.com/verbena-rdma/verbena/internal/ring"

// callbacks run user code on a goroutine of the reactor that is not its loop:
// one that blocks, or awaits, delays other callbacks, and neither completions nor
// events. In order, one at a time. One that panics is told or raised (complete_panic.go); one that
// ends the goroutine ends that only, and the others run on another.
type callbacks struct {
	queue ring.Inbox[call, *call]
	// wake holds one token when there may be something. stop ends the
	// goroutine, which then closes ended.
	wake, stop, ended chan struct{}
}

func (cb *callbacks) Empty() bool { return cb.queue.Empty() }

func (r *Reactor) startCallbacks() {
	cb := &r.callbacks
	cb.wake, cb.stop, cb.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go r.serveCallbacks()
}

// serveCallbacks is the callback goroutine.
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

// runCallbacks calls every function of the queue, in order.
func (r *Reactor) runCallbacks() { r.callAll(r.callbacks.queue.TakeAll()) }

// callAll calls c and those behind it, also if one of them ends this goroutine: then the
// others are called before it ends.
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

// callSome calls the functions of left in order and stops behind the first that panics. It
// is not a part of callAll for the same reason as catch is not a part of attempt.
func (r *Reactor) callSome(left **call) {
	defer func() {
		if v := recover(); v != nil {
			_ = Recovered(v, r.cfg.OnPanic) // it has told of what it returns
		}
	}()
	for c := *left; c != nil; c = *left {
		*left = c.hook.Unlink() // before: it may be queued again while it runs
		c.fn()
	}
}

// Callback queues user code for the reactor's callback goroutine, where it runs
// without the turn. It may block and may use the reactor, at the price that other
// callbacks wait; it must not close the reactor. A panic is the program's, or
// Config.OnPanic's. It allocates. Any goroutine. A stepped reactor runs it in Step.
func (r *Reactor) Callback(fn func()) { r.callback(&call{fn: fn}) }

// Job is a function for the callback goroutine that is queued again and again
// without an allocation. It is in the queue at most once: Queue it again only
// after, or while, it runs.
type Job struct{ call call }

// NewJob makes a job that runs fn, as Callback says.
func NewJob(fn func()) *Job { return &Job{call{fn: fn}} }

// Queue is Callback for a job. It does not block or allocate. Any goroutine.
func (r *Reactor) Queue(j *Job) { r.callback(&j.call) }

func (r *Reactor) callback(c *call) {
	first := r.callbacks.queue.Push(c)
	switch {
	case r.cfg.Stepped:
		r.tok.Submitted()
	case first:
		select {
		case r.callbacks.wake <- struct{}{}:
		default: // it will look anyway
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
