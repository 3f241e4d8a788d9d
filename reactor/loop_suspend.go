package reactor

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// suspendTime is how long a source whose events could not be taken is suspended.
const suspendTime = 10 * time.Millisecond

// A descriptor stays readable if its event could not be taken, and stays in error forever if its
// device is gone (Linux uverbs_main.c, ib_uverbs_event_poll: EPOLLERR once it is closed, and read
// answers EIO). If the loop still polled this descriptor, it would never sleep. So a source that
// fails is suspended:
//
//	attached ──fails──> suspended ──suspendTime──> attached
//	    │ Unwatch          │ Unwatch
//	    v                  v
//	  gone               gone
//
// The poller reports events that came before the second attaching, so none is missed.

// SuspendSource suspends a watched source whose events could not be taken. After suspendTime its
// function is called again if it has events. A stepped reactor calls the function in every Step
// even so. It has the timer only to move virtual time, which jumps to the next timer when nothing
// happens. Holder only.
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
		// Any other error of Detach (a closed descriptor) does not matter: the poller no longer
		// has the source, and resumeSource attaches it again.
		if err := r.sleep.Detach(key); errors.Is(err, sys.ErrPollerClosed) {
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
		return // it is not watched any more
	}
	if !r.cfg.Stepped {
		if err := r.sleep.Attach(s, key); err != nil && !errors.Is(err, sys.ErrPollerClosed) {
			r.After(suspendTime, func() { r.resumeSource(s, key) })
			return
		}
	}
	delete(r.suspended, key)
}
