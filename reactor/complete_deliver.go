package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
)

// delivery is the promise of an ended operation. It has its result already (Promise.Fill); the
// method deliver wakes the waiters (Promise.Publish).
type delivery = futures.Promise[Completion]

// outcome is a result for a sink. The unused entries of Reactor.outcomes, from its length to its
// capacity, are used again. They have no sink and no err. Their queue may be set, but not to a
// reclaimed queue (see Reactor.forget).
type outcome struct {
	sink  Sink
	c     Completion
	err   error
	after int32  // how many promises of Reactor.filled are published before it
	queue *Queue // the operation's queue; nil: none
}

// notice makes a Sink of a function, so that notifications are delivered in order with results.
type notice func()

// Complete implements Sink.
func (fn notice) Complete(SinkContext, Completion, error) { fn() }

// deliver delivers the results of ended operations, in order. A pass calls it last, when slots and
// leases are given back: so a sink may call the reactor, and finds room. A sink may end more
// operations and so call deliver again. Then the inner call delivers all results, and the outer
// call finds none left. Holder only.
func (r *Reactor) deliver() {
	if r.deliveredSinks == len(r.outcomes) { // no sinks; settling futures calls no user code
		r.deliverAll()
		return
	}
	r.runUserCode(r.deliverFn)
}

// deliverAll is the body of deliver. If a sink does not return, runUserCode calls deliverAll again,
// which goes on with the next result.
func (r *Reactor) deliverAll() {
	r.delivering = true
	for {
		if r.deliveredSinks < len(r.outcomes) && int(r.outcomes[r.deliveredSinks].after) <= r.delivered {
			o := &r.outcomes[r.deliveredSinks] // the sink may add outcomes, which may move *o: read it first
			r.deliveredSinks++
			sink, err := o.sink, o.err
			r.sinkOwner = o.queue
			o.sink, o.err = nil, nil      // o.queue stays: clearing it would take 1 of the 42 ns of a sink's result
			if r.sinks.current.r == nil { // this is the first sink, or an inner deliver has ended the round
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
	// The slices are truncated, not cleared. An old promise keeps at most the memory of its future
	// alive, and not the result: the future drops the result when it is taken.
	r.filled, r.delivered = r.filled[:0], 0
	r.outcomes, r.deliveredSinks = r.outcomes[:0], 0
	r.delivering = false
}

// addOutcome adds an outcome of q (nil: of no queue), to be delivered. The caller must set the
// other fields of the outcome before it adds another, which may move the first.
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
// or, between passes, before notifyLater returns.
func (r *Reactor) notifyLater(fn func()) {
	r.addOutcome(nil).sink = notice(fn)
	if !r.inPass {
		r.deliver()
	}
}

// Notify has fn, which is user code, called while the turn is held. In a pass fn is called at the
// end of the pass; in a sink, after the sink; otherwise, before Notify returns. A panic or
// runtime.Goexit in fn does not reach the caller. Notify allocates. Holder only.
func (r *Reactor) Notify(fn func()) { r.addNotice(nil, notice(fn)) }

// Notify has s called with a zero Completion and a nil error, after the sinks of all operations
// that ended earlier. If s panics, the queue fails, as for the sink of an operation
// (Config.OnPanic). Notify does not allocate. Holder only.
func (q *Queue) Notify(s Sink) { q.r.addNotice(q, s) }

func (r *Reactor) addNotice(q *Queue, s Sink) {
	r.addOutcome(q).sink = s
	if !r.inPass && !r.delivering {
		r.deliver()
	}
}
