package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
)

// delivery is the result of an operation with a future: a promise that is filled and not yet
// published.
type delivery = futures.Promise[Completion]

// outcome is a result for a sink. The entries behind len(Reactor.outcomes) are used again. They
// have no sink and no err; they may refer to a queue, but not to a reclaimed one (see
// Reactor.forget).
type outcome struct {
	sink  Sink
	c     Completion
	err   error
	after int32  // how many of Reactor.filled are published before it
	queue *Queue // the operation's queue; nil: none
}

// notice is a notification of a queue's owner, used as a sink.
type notice func()

// Complete implements Sink.
func (fn notice) Complete(SinkContext, Completion, error) { fn() }

// deliver delivers the results of ended operations, in order. It runs after a pass has gathered,
// posted and dispatched, so leases and slots are given back first: the receiver of a result finds
// room and may call the reactor. A sink or notification that ends more operations may call deliver
// itself. Then that call delivers everything, and the outer one finds nothing left. Holder only.
func (r *Reactor) deliver() {
	if r.deliveredSinks == len(r.outcomes) { // only futures, which call no user code
		r.deliverAll()
		return
	}
	r.runUserCode(r.deliverFn)
}

// deliverAll does the work of deliver. If a sink does not return, runUserCode calls deliverAll
// again, which goes on with the next result.
func (r *Reactor) deliverAll() {
	r.delivering = true
	for {
		if r.deliveredSinks < len(r.outcomes) && int(r.outcomes[r.deliveredSinks].after) <= r.delivered {
			o := &r.outcomes[r.deliveredSinks] // the sink may cause it to move, so read it first
			r.deliveredSinks++
			sink, err := o.sink, o.err
			r.sinkOwner = o.queue
			o.sink, o.err = nil, nil      // queue stays: clearing it costs 1 ns of the 42 ns that a sink's result takes
			if r.sinks.current.r == nil { // the first sink, or the first after one that called deliver
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
	// The slices are truncated, not cleared. An old promise keeps at most its cell alive, and a
	// cell drops its result when the result is taken.
	r.filled, r.delivered = r.filled[:0], 0
	r.outcomes, r.deliveredSinks = r.outcomes[:0], 0
	r.delivering = false
}

// addOutcome adds an outcome of q (nil: none) to be delivered. The caller must set its fields at
// once, because the next addOutcome may move it.
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

// notifyLater has fn called after the results that wait to be delivered: at the end of the pass,
// or at once between passes.
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

// Notify calls s with a zero Completion and a nil error, after the sinks of all operations that
// ended earlier. If s panics, the queue fails, as for the sink of an operation (Config.OnPanic).
// It does not allocate. Holder only.
func (q *Queue) Notify(s Sink) { q.r.addNotice(q, s) }

func (r *Reactor) addNotice(q *Queue, s Sink) {
	r.addOutcome(q).sink = s
	if !r.inPass && !r.delivering {
		r.deliver()
	}
}
