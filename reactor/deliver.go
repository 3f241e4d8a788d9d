package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
)

// delivery is one result on its way to whoever awaits it: a promise that is filled and
// not published.
type delivery = futures.Promise[Completion]

// outcome is a result for a sink. Free ones have no sink or err.
type outcome struct {
	sink  Sink
	c     Completion
	err   error
	after int // of Reactor.out that come before it
}

// notice is a notification of a queue's owner in a sink's place.
type notice func()

// Complete implements Sink.
func (fn notice) Complete(Turn, Completion, error) { fn() }

// deliver hands out, in order, what has ended. Nothing is delivered while a turn
// is gathering, posting or dispatching: by then leases and slots are back,
// so that whoever gets a result finds room, and may do to the reactor what it
// likes. A sink or notification may end more operations, and deliver those
// itself: the loop goes on where that stopped. Holder only.
func (r *Reactor) deliver() {
	for {
		if r.told < len(r.outcomes) && r.outcomes[r.told].after <= r.delivered {
			o := &r.outcomes[r.told] // it may move: read before anybody is called
			r.told++
			sink, err := o.sink, o.err
			o.sink, o.err = nil, nil
			if r.here.turn.r == nil { // again, where a sink delivered
				r.here.open(r)
			}
			sink.Complete(r.here.turn, o.c, err)
			continue
		}
		if r.delivered == len(r.out) {
			break
		}
		d := r.out[r.delivered]
		r.delivered++
		d.Publish()
	}
	r.here.shut()
	// Not cleared: a promise that was kept keeps a cell at most, which has no result
	// any more when it was taken.
	r.out, r.delivered = r.out[:0], 0
	r.outcomes, r.told = r.outcomes[:0], 0
}

// note adds an outcome that waits to be delivered. It is filled in at once: the next
// one may move it.
func (r *Reactor) note() *outcome {
	n := len(r.outcomes)
	if n == cap(r.outcomes) {
		r.outcomes = append(r.outcomes, outcome{})
	}
	r.outcomes = r.outcomes[:n+1]
	o := &r.outcomes[n]
	o.after = len(r.out)
	return o
}

// notify has fn called after what has ended before it: at once, or at the end
// of the turn.
func (r *Reactor) notify(fn func()) {
	r.note().sink = notice(fn)
	if !r.inTurn {
		r.deliver()
	}
}
