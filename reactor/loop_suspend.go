package reactor

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// suspendTime is how long a source stays suspended. During this time the loop does not poll the
// source. So a source that keeps failing wakes the loop rarely.
const suspendTime = 10 * time.Millisecond

// While an event of a source cannot be taken, the source's descriptor stays readable. If the device is
// gone, the descriptor reports an error forever (Linux uverbs_main.c: once the event queue is closed,
// ib_uverbs_event_poll returns EPOLLERR and a read returns EIO). If the loop polled such a descriptor,
// the loop would never sleep. So a source that fails is suspended:
//
//	attached ──fails──> suspended ──suspendTime──> attached
//	    │ Unwatch          │ Unwatch
//	    v                  v
//	  gone               gone
//
// No event is missed: when a source is attached again, the poller also reports earlier events.

// SuspendSource suspends a watched source. Call it when the events of the source cannot be taken.
// After suspendTime the loop polls the source again, and calls the function given to Watch if there
// are events. Only the holder may call SuspendSource.
//
// A stepped reactor calls the function given to Watch in every Step, even while the source is
// suspended. In a stepped reactor the timer of suspendTime only makes virtual time advance: when
// there is nothing else to do, virtual time jumps to the next timer.
func (r *Reactor) SuspendSource(s verbs.Source) {
	for _, w := range r.sources {
		if w.s == s {
			r.suspendSource(s, w.key)
		}
	}
}

func (r *Reactor) suspendSource(s verbs.Source, key uint32) {
	if r.suspended[key] != nil {
		return
	}
	if !r.cfg.Stepped {
		// Any other error of Detach (for example, because the descriptor is closed) is ignored:
		// the poller no longer has the source in any case, and resumeSource attaches it again.
		if err := r.detach(s, key); errors.Is(err, sys.ErrPollerClosed) {
			return
		}
	}
	if r.suspended == nil {
		r.suspended = map[uint32]verbs.Source{}
	}
	r.suspended[key] = s
	r.After(suspendTime, func() { r.resumeSource(s, key) })
}

func (r *Reactor) resumeSource(s verbs.Source, key uint32) {
	if r.suspended[key] != s {
		return // the source is not watched any more
	}
	if !r.cfg.Stepped {
		if err := r.attach(s, key); err != nil && !errors.Is(err, sys.ErrPollerClosed) {
			r.After(suspendTime, func() { r.resumeSource(s, key) })
			return
		}
	}
	delete(r.suspended, key)
}
