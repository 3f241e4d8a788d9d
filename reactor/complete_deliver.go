package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
)

// delivery is one result on its way to whoever awaits it: a promise that is filled and
// not published.
type delivery = futures.Promise[Completion]

// outcome is a result for a sink. Free ones have no sink or err, and no queue that is gone
// (forget).
type outcome struct {
	sink  Sink
	c     Completion
	err   error
	after int32  // of Reactor.out that come before it
	queue *Queue // whose operation it was; nil: of none
}

// notice is a notification of a queue's owner in a sink's place.
type notice func()

// Complete implements Sink.
func (fn notice) Complete(SinkContext, Completion, error) { fn() }

// deliver hands out, in order, what has ended. Nothing is delivered while a turn
// is gathering, posting or dispatching: by then leases and slots are back,
// so that whoever gets a result finds room, and may do to the reactor what it
// likes. A sink or notification may end more operations, and deliver those
// itself: the loop goes on where that stopped. Holder only.
func (r *Reactor) deliver() {
	if r.deliveredSinks == len(r.outcomes) { // only futures ended: they call no user code
		r.deliverAll()
		return
	}
	r.attend(r.deliverFn)
}

// deliverAll is deliver. It may be called again when a sink has not returned: that one
// was told.
func (r *Reactor) deliverAll() {
	r.delivering = true
	for {
		if r.deliveredSinks < len(r.outcomes) && int(r.outcomes[r.deliveredSinks].after) <= r.delivered {
			o := &r.outcomes[r.deliveredSinks] // it may move: read before anybody is called
			r.deliveredSinks++
			sink, err := o.sink, o.err
			r.sinkOwner = o.queue
			o.sink, o.err = nil, nil      // queue stays: to clear it costs a sink's result 1 of 42 ns
			if r.sinks.current.r == nil { // again, where a sink delivered
				r.sinks.begin(r)
			}
			sink.Complete(r.sinks.current, o.c, err)
			continue
		}
		if r.delivered == len(r.out) {
			break
		}
		d := r.out[r.delivered]
		r.delivered++
		d.Publish()
	}
	r.sinks.end()
	// Not cleared: a promise that was kept keeps a cell at most, which has no result
	// any more when it was taken.
	r.out, r.delivered = r.out[:0], 0
	r.outcomes, r.deliveredSinks = r.outcomes[:0], 0
	r.delivering = false
}

// addOutcome adds an outcome that waits to be delivered, of q (nil: of none). It is filled
// in at once: the next one may move it.
func (r *Reactor) addOutcome(q *Queue) *outcome {
	n := len(r.outcomes)
	if n == cap(r.outcomes) {
		r.outcomes = append(r.outcomes, outcome{})
	}
	r.outcomes = r.outcomes[:n+1]
	o := &r.outcomes[n]
	o.after, o.queue = int32(len(r.out)), q
	return o
}

// notifyLater has fn called after what has ended before it: at once, or at the end
// of the turn.
func (r *Reactor) notifyLater(fn func()) {
	r.addOutcome(nil).sink = notice(fn)
	if !r.inPass {
		r.deliver()
	}
}

// Notify has fn, which is user code, called holding the turn: at the end of the turn, or at
// once between turns. What fn does, panic and runtime.Goexit included, does not reach
// the caller. It allocates. Holder only.
func (r *Reactor) Notify(fn func()) { r.addNotice(nil, notice(fn)) }

// Notify calls s without a completion, after the sinks of all operations that ended earlier.
// s is treated as the sink of an operation of this queue: if it panics, the queue fails
// (Config.OnPanic). Tell does not allocate. Holder only.
func (q *Queue) Notify(s Sink) { q.r.addNotice(q, s) }

func (r *Reactor) addNotice(q *Queue, s Sink) {
	r.addOutcome(q).sink = s
	if !r.inPass && !r.delivering {
		r.deliver()
	}
}
