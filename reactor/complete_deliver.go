package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
)

// delivery is the result of an operation with a future: a promise that is filled and not yet
// published.
type delivery = futures.Promise[Completion]

// outcome is a result for a sink. A free one has no sink or err, and refers to no reclaimed
// queue (forget).
type outcome struct {
	sink  Sink
	c     Completion
	err   error
	after int32  // how many of Reactor.filled come before it
	queue *Queue // the operation's queue; nil: none
}

// notice is a notification of a queue's owner, used as a sink.
type notice func()

// Complete implements Sink.
func (fn notice) Complete(SinkContext, Completion, error) { fn() }

// deliver delivers the results of ended operations, in order. Nothing is delivered while a pass
// gathers, posts or dispatches: leases and slots are given back first, so that the receiver of a
// result finds room, and may call the reactor freely. A sink or notification may end more
// operations, and deliver those itself: the loop then goes on behind them. Holder only.
func (r *Reactor) deliver() {
	if r.deliveredSinks == len(r.outcomes) { // only futures, which call no user code
		r.deliverAll()
		return
	}
	r.runUserCode(r.deliverFn)
}

// deliverAll does the work of deliver. After a sink did not return it is called again, and goes
// on with the next.
func (r *Reactor) deliverAll() {
	r.delivering = true
	for {
		if r.deliveredSinks < len(r.outcomes) && int(r.outcomes[r.deliveredSinks].after) <= r.delivered {
			o := &r.outcomes[r.deliveredSinks] // it may move: read it before the sink is called
			r.deliveredSinks++
			sink, err := o.sink, o.err
			r.sinkOwner = o.queue
			o.sink, o.err = nil, nil      // queue stays: clearing it costs a sink's result 1 of 42 ns
			if r.sinks.current.r == nil { // again after a sink has delivered
				r.sinks.begin(r)
			}
			sink.Complete(r.sinks.current, o.c, err)
			continue
		}
		if r.delivered == len(r.filled) {
			break
		}
		d := r.filled[r.delivered]
		r.delivered++
		d.Publish()
	}
	r.sinks.end()
	// Not cleared: an old promise keeps at most a cell alive, and a cell whose result was taken
	// holds none.
	r.filled, r.delivered = r.filled[:0], 0
	r.outcomes, r.deliveredSinks = r.outcomes[:0], 0
	r.delivering = false
}

// addOutcome adds an outcome of q (nil: none) to be delivered. The caller must fill it in at
// once: the next call may move it.
func (r *Reactor) addOutcome(q *Queue) *outcome {
	n := len(r.outcomes)
	if n == cap(r.outcomes) {
		r.outcomes = append(r.outcomes, outcome{})
	}
	r.outcomes = r.outcomes[:n+1]
	o := &r.outcomes[n]
	o.after, o.queue = int32(len(r.filled)), q
	return o
}

// notifyLater has fn called after the results that are already there: at once, or at the end of
// the pass.
func (r *Reactor) notifyLater(fn func()) {
	r.addOutcome(nil).sink = notice(fn)
	if !r.inPass {
		r.deliver()
	}
}

// Notify calls fn, which is user code, while the turn is held: at the end of the pass, or at once
// between passes. A panic or runtime.Goexit in fn does not reach the caller. It allocates.
// Holder only.
func (r *Reactor) Notify(fn func()) { r.addNotice(nil, notice(fn)) }

// Notify calls s without a completion, after the sinks of all operations that ended earlier. It
// treats s as the sink of an operation of this queue: if s panics, the queue fails
// (Config.OnPanic). It does not allocate. Holder only.
func (q *Queue) Notify(s Sink) { q.r.addNotice(q, s) }

func (r *Reactor) addNotice(q *Queue, s Sink) {
	r.addOutcome(q).sink = s
	if !r.inPass && !r.delivering {
		r.deliver()
	}
}
