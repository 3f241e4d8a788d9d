package reactor

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// suspendTime is how long a source whose events could not be taken is suspended.
const suspendTime = 10 * time.Millisecond

// A descriptor stays readable when its event could not be taken, and it stays in error for ever
// when its device is gone (Linux uverbs_main.c, ib_uverbs_event_poll: EPOLLERR once it is closed,
// and read answers EIO). A loop that still polled it would never sleep. So a source that fails is
// suspended:
//
//	attached ──fails──> suspended ──suspendTime──> attached
//	    │ Unwatch          │ Unwatch
//	    v                  v
//	  gone               gone
//
// Attaching it again reports the events that wait there, so none is missed.

// SuspendSource suspends a watched source whose events could not be taken. After a moment its
// function is called again if it has events. A stepped reactor asks the source at every Step all
// the same; it has the end of the suspension only for virtual time, which moves to the next timer
// when nothing happens. Holder only.
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
		// Any other error of Detach (a descriptor that was closed) does not matter: the poller has
		// forgotten the source, so resumeSource must attach it again.
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
