package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/futures"
)

// delivery is one result on its way to whoever asked for it, or a notification
// of a queue's owner.
type delivery struct {
	fn      func() // a notification; then the rest is empty
	sink    Sink
	promise futures.Promise[Completion]
	c       Completion
	err     error
}

// deliver hands out, in order, what has ended. Nothing is delivered while a turn
// is gathering, posting or dispatching: by then leases, slots and credits are back,
// so that whoever gets a result finds room, and may do to the reactor what it
// likes. A sink or notification may end more operations, and deliver those
// itself: the loop goes on where that stopped. Holder only.
func (r *Reactor) deliver() {
	for r.delivered < len(r.out) {
		d := r.out[r.delivered]
		r.out[r.delivered] = delivery{}
		r.delivered++
		switch {
		case d.fn != nil:
			d.fn()
		case d.sink != nil:
			d.sink.Complete(d.c, d.err)
		case !d.promise.Settle(d.c, d.err):
			panic(fmt.Sprintf("reactor: %v completed twice", d.c.Kind))
		}
	}
	r.out, r.delivered = r.out[:0], 0
}

// notify has fn called after what has ended before it: at once, or at the end
// of the turn.
func (r *Reactor) notify(fn func()) {
	r.out = append(r.out, delivery{fn: fn})
	if !r.inTurn {
		r.deliver()
	}
}
