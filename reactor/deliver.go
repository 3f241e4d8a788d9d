package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
)

// delivery is one result on its way to whoever asked for it: a promise that is
// filled and not published; the zero promise stands for the next of Reactor.outcomes
// after it.
type delivery = futures.Promise[Completion]

// outcome is a result for a sink, or, with fn, a notification of a queue's owner.
// Free ones have no fn, sink or err.
type outcome struct {
	fn   func()
	sink Sink
	c    Completion
	err  error
}

// deliver hands out, in order, what has ended. Nothing is delivered while a turn
// is gathering, posting or dispatching: by then leases and slots are back,
// so that whoever gets a result finds room, and may do to the reactor what it
// likes. A sink or notification may end more operations, and deliver those
// itself: the loop goes on where that stopped. Holder only.
func (r *Reactor) deliver() {
	for r.delivered < len(r.out) {
		d := r.out[r.delivered]
		r.delivered++
		if d != (delivery{}) {
			d.Publish()
			continue
		}
		o := &r.outcomes[r.told] // it may move: read before anybody is called
		r.told++
		fn, sink, err := o.fn, o.sink, o.err
		o.fn, o.sink, o.err = nil, nil, nil
		if fn != nil {
			fn()
		} else {
			sink.Complete(o.c, err)
		}
	}
	// Not cleared: a promise that was kept keeps a cell at most, which has no result
	// any more when it was taken.
	r.out, r.delivered = r.out[:0], 0
	r.outcomes, r.told = r.outcomes[:0], 0
}

// note adds an outcome that waits to be delivered. It is filled in at once: the next
// one may move it.
func (r *Reactor) note() *outcome {
	r.out = append(r.out, delivery{})
	n := len(r.outcomes)
	if n == cap(r.outcomes) {
		r.outcomes = append(r.outcomes, outcome{})
	}
	r.outcomes = r.outcomes[:n+1]
	return &r.outcomes[n]
}

// notify has fn called after what has ended before it: at once, or at the end
// of the turn.
func (r *Reactor) notify(fn func()) {
	r.note().fn = fn
	if !r.inTurn {
		r.deliver()
	}
}
