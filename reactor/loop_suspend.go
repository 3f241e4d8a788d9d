package reactor

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// suspendTime is how long a source that fails to give its events is let be.
const suspendTime = 10 * time.Millisecond

// A descriptor stays readable when its event could not be taken, and it stands in
// error for ever when its device is gone (Linux uverbs_main.c,
// ib_uverbs_event_poll: EPOLLERR once it is closed, and read answers EIO). A loop
// that listened on would go round as fast as it can. So a source that fails rests:
//
//	attached ──fails──> resting ──suspendTime──> attached
//	    │ Unwatch          │ Unwatch
//	    v                  v
//	  gone               gone
//
// Attaching it again reports what waits there; that is how the event is asked for
// anew.

// SuspendSource has a source that Watch was called for, and whose events could not be
// taken, let be for a moment; then its function is called again if it has events.
// A stepped reactor asks at every Step all the same; the end of the rest is there
// for virtual time, which moves to the next timer when nothing happens. Holder only.
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
		// What else keeps the poller from letting go (a descriptor that was closed) does
		// not matter: it has forgotten the source, so rested must attach it again.
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
		return // nobody watches it any more
	}
	if !r.cfg.Stepped {
		if err := r.sleep.Attach(s, key); err != nil && !errors.Is(err, sys.ErrPollerClosed) {
			r.After(suspendTime, func() { r.resumeSource(s, key) })
			return
		}
	}
	delete(r.suspended, key)
}
