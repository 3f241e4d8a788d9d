package reactor

import "github.com/verbena-rdma/verbena/internal/ring"

// callbacks run user code on a goroutine of the reactor that is not its loop:
// one that blocks, or awaits, delays other callbacks, and neither completions nor
// events. In order, one at a time.
type callbacks struct {
	queue ring.Inbox[call, *call]
	// wake holds one token when there may be something. stop ends the
	// goroutine, which then closes ended.
	wake, stop, ended chan struct{}
}

func (cb *callbacks) start() {
	cb.wake, cb.stop, cb.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(cb.ended)
		for {
			select {
			case <-cb.wake:
				cb.run()
			case <-cb.stop:
				cb.run()
				return
			}
		}
	}()
}

func (cb *callbacks) Empty() bool { return cb.queue.Empty() }

func (cb *callbacks) run() {
	for c := cb.queue.TakeAll(); c != nil; {
		next := c.hook.Unlink()
		c.fn()
		c = next
	}
}

// Callback queues user code for the reactor's callback goroutine, where it runs
// without the turn. It may block and may use the reactor, at the price that other
// callbacks wait; it must not close the reactor. It allocates. Any goroutine. A
// stepped reactor runs it in Step.
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
			go r.callbacks.run()
		default:
		}
	}
}

func (r *Reactor) runCallbacks() { r.callbacks.run() }
