package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
)

// delivery is one result on its way to whoever asked for it, or a notification
// of a queue's owner: one of the three.
type delivery struct {
	fn      func()
	sink    Sink                        // its outcome is the next of Reactor.sunk
	promise futures.Promise[Completion] // filled, and not published
}

// outcome is a result for a sink.
type outcome struct {
	c   Completion
	err error
}

// deliver hands out, in order, what has ended. Nothing is delivered while a turn
// is gathering, posting or dispatching: by then leases and slots are back,
// so that whoever gets a result finds room, and may do to the reactor what it
// likes. A sink or notification may end more operations, and deliver those
// itself: the loop goes on where that stopped. Holder only.
func (r *Reactor) deliver() {
	for r.delivered < len(r.out) {
		d := &r.out[r.delivered] // it may move: read before anything is called
		r.delivered++
		switch {
		case d.fn != nil:
			d.fn()
		case d.sink != nil:
			sink, o := d.sink, r.sunk[r.answered]
			r.answered++
			sink.Complete(o.c, o.err)
		default:
			d.promise.Publish()
		}
	}
	clear(r.out) // nothing is kept alive
	r.out, r.delivered = r.out[:0], 0
	clear(r.sunk)
	r.sunk, r.answered = r.sunk[:0], 0
}

// notify has fn called after what has ended before it: at once, or at the end
// of the turn.
func (r *Reactor) notify(fn func()) {
	r.out = append(r.out, delivery{fn: fn})
	if !r.inTurn {
		r.deliver()
	}
}
