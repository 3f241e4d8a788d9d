package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
)

// delivery is the promise of an ended operation. The result is already stored, by Promise.Fill or
// through the pointer that Promise.Value returns. Reactor.deliver calls Promise.Publish, which wakes
// the waiters.
type delivery = futures.Promise[Completion]

// outcome is a result for a sink. addOutcome reuses the entries between the length and the capacity
// of Reactor.outcomes. In such an entry the fields sink and err are nil. The field queue may still be
// set, but not to a reclaimed queue, because Reactor.forget clears the references to a reclaimed queue.
type outcome struct {
	sink  Sink
	c     Completion
	err   error
	after int32  // how many promises of Reactor.filled are published before the sink is called
	queue *Queue // the queue that fails if the sink panics; nil: none
}

// notice is a function that implements Sink. A notice can be queued in Reactor.outcomes, and is then
// called in order with the sinks of operations.
type notice func()

// Complete implements Sink.
func (fn notice) Complete(SinkContext, Completion, error) { fn() }

// deliver delivers the results of ended operations, in the order in which the operations ended.
// deliver is the last step of a pass. At this point the slots of the operations are free and their
// leases have ended, so a sink that submits a request can use these slots. A sink may end further
// operations, for example by Release, which also calls deliver. Then the inner call of deliver
// delivers all remaining results, and the outer call finds none. Only the holder calls deliver.
func (r *Reactor) deliver() {
	if r.deliveredSinks == len(r.outcomes) { // there is no sink to call, and settling a future calls no user code
		r.deliverAll()
		return
	}
	r.runUserCode(r.deliverFn)
}

// deliverAll is the body of deliver. If a sink panics or ends the goroutine, runUserCode calls
// deliverAll again, and the second call goes on with the next result.
func (r *Reactor) deliverAll() {
	r.delivering = true
	for {
		if r.deliveredSinks < len(r.outcomes) && int(r.outcomes[r.deliveredSinks].after) <= r.delivered {
			o := &r.outcomes[r.deliveredSinks] // read *o before the call: a sink may add outcomes, which may move *o
			r.deliveredSinks++
			sink, err := o.sink, o.err
			r.sinkOwner = o.queue
			o.sink, o.err = nil, nil      // o.queue is not cleared: that would add 1 ns to the 42 ns that a PostFromSink takes
			if r.sinks.current.r == nil { // no round of sink calls is open (see SinkContext)
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
	// The slices are truncated, not cleared. An old promise in r.filled keeps the memory of its
	// future alive, but not the result: the future drops the result when a goroutine takes the result.
	r.filled, r.delivered = r.filled[:0], 0
	r.outcomes, r.deliveredSinks = r.outcomes[:0], 0
	r.delivering = false
}

// addOutcome appends an outcome of the queue q to Reactor.outcomes. A nil q means no queue. The
// caller must set the other fields before the next call of addOutcome, which may move the outcome.
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

// notifyLater queues a call of fn behind the undelivered results. If a pass is running, fn runs at
// the end of the pass. Otherwise fn runs before notifyLater returns.
func (r *Reactor) notifyLater(fn func()) {
	r.addOutcome(nil).sink = notice(fn)
	if !r.inPass {
		r.deliver()
	}
}

// Notify calls the user function fn while the turn is held. If a pass is running, fn runs at the end
// of the pass. If a sink is running, fn runs after this sink. Otherwise fn runs before Notify returns.
// A panic or runtime.Goexit in fn does not reach the caller of Notify. Notify allocates. Only the
// holder may call Notify.
func (r *Reactor) Notify(fn func()) { r.addNotice(nil, notice(fn)) }

// Notify calls s.Complete with a zero Completion and a nil error, after the sinks of all operations
// that ended earlier. Like Reactor.Notify, it may return before s.Complete is called. If s panics, the
// queue fails, as it does when the sink of an operation panics (Config.OnPanic). Notify does not
// allocate. Only the holder may call Notify.
func (q *Queue) Notify(s Sink) { q.r.addNotice(q, s) }

func (r *Reactor) addNotice(q *Queue, s Sink) {
	o := r.addOutcome(q)
	o.sink, o.c = s, Completion{} // a reused outcome may hold an old Completion
	if !r.inPass && !r.delivering {
		r.deliver()
	}
}
