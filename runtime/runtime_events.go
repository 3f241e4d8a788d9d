package runtime

import "github.com/verbena-rdma/verbena/reactor"

// eventsPerPass is how many connection events, or asynchronous events, are handled per pass; the
// next passes handle the rest. A connection request that is refused takes some 3 µs.
const eventsPerPass = 4

// events handles the events of a source, a few in each pass. Owned by the holder.
type events struct {
	r *reactor.Reactor
	// next handles one event. It reports whether there was one.
	next func() bool
	// queued is true while the method remaining is deferred. It handles the events
	// that are left, so take does nothing meanwhile.
	queued bool
}

// take handles the next events. The source's Watch calls it.
func (e *events) take() {
	if !e.queued && e.handleBatch() {
		// Defer twice: the outer function still runs before this pass, so that
		// the method remaining runs before the next pass.
		e.r.Defer(func() { e.r.Defer(e.remaining) })
	}
}

// remaining handles more events, and defers itself if some are left.
func (e *events) remaining() {
	if e.handleBatch() {
		e.r.Defer(e.remaining)
	}
}

// handleBatch handles the events of one pass. It reports whether there may be
// more; then remaining must be called.
func (e *events) handleBatch() bool {
	e.queued = false
	for range eventsPerPass {
		if !e.next() {
			return false
		}
	}
	e.queued = true
	return true
}

// takeAll handles all pending events.
func (e *events) takeAll() {
	for e.next() {
	}
}
