package runtime

import "github.com/verbena-rdma/verbena/reactor"

// eventsPerPass is how many events of one source (the connection events, or the asynchronous
// events) are handled between two passes of the reactor. The other events wait for later passes.
// Refusing a connection request takes some 3 µs.
const eventsPerPass = 4

// events handles the events of a source, a few before each pass of the reactor. The holder of the
// turn (the goroutine that runs the reactor) owns it.
type events struct {
	r *reactor.Reactor
	// The function next handles one event. It reports whether there was one.
	next func() bool
	// queued is true while a deferred call of the method remaining is pending. That call handles
	// the events that are left, so take does nothing meanwhile.
	queued bool
}

// take handles the next events. The reactor calls it when the source may have events
// (Reactor.Watch).
func (e *events) take() {
	if !e.queued && e.handleBatch() {
		// The loop calls this method, then the deferred functions, and then runs a pass. After a
		// single Defer the method remaining would run before that pass. After two it runs after
		// that pass.
		e.r.Defer(func() { e.r.Defer(e.remaining) })
	}
}

// The method remaining handles more events. If some are left, it defers itself until after the next
// pass.
func (e *events) remaining() {
	if e.handleBatch() {
		e.r.Defer(e.remaining)
	}
}

// handleBatch handles up to eventsPerPass events. It returns true if there may be more; the caller
// must then defer a call of the method remaining.
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
