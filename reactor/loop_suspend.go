package reactor

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// suspendTime is how long the loop does not poll a source whose events could not be taken.
const suspendTime = 10 * time.Millisecond

// A descriptor stays readable if its event could not be taken. If its device is gone, it reports an
// error forever (Linux uverbs_main.c: after the close, ib_uverbs_event_poll returns EPOLLERR and a
// read returns EIO). If the loop still polled such a descriptor, it would never sleep. So a source
// that fails is suspended:
//
//	attached ──fails──> suspended ──suspendTime──> attached
//	    │ Unwatch          │ Unwatch
//	    v                  v
//	  gone               gone
//
// Attaching a source again also reports the events that came before, so none is missed.

// SuspendSource suspends a watched source whose events could not be taken. After suspendTime the
// source is polled again, and the function given to Watch is called if there are events. Holder
// only.
//
// A stepped reactor calls that function in every Step all the same. There the timer only makes
// virtual time advance: when nothing else happens, virtual time jumps to the next timer.
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
		// Another error of Detach (a closed descriptor) does not matter: the poller no longer has
		// the source, and resumeSource attaches it again.
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
