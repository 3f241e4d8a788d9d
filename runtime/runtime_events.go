package runtime

import "github.com/verbena-rdma/verbena/reactor"

// eventsPerPass is the maximum number of events of one source (the connection events, or the
// asynchronous events) that are handled between two passes of the reactor. Further events wait
// until after the next pass, so that they do not delay the pass. For example, the refusal of a
// connection request takes some 3 µs.
const eventsPerPass = 4

// events handles the events of one source, at most eventsPerPass before each pass of the reactor. The
// holder of the turn (the goroutine that runs the reactor) owns all fields.
type events struct {
	r *reactor.Reactor
	// next handles one event, and reports whether there was an event.
	next func() bool
	// queued is true while a deferred call of e.remaining is pending. This call handles the events
	// that are left, so e.take does nothing while queued is true.
	queued bool
}

// events.take handles up to eventsPerPass events. The reactor calls this method when the source may
// have events (Reactor.Watch).
func (e *events) take() {
	if !e.queued && e.handleBatch() {
		// The remaining events must wait until after the next pass, which takes two calls of Defer.
		// The loop calls this method, then the deferred functions, and then runs a pass. So a function
		// that is deferred here runs before that pass. A function that is deferred by a deferred
		// function runs after that pass.
		e.r.Defer(func() { e.r.Defer(e.remaining) })
	}
}

// events.remaining handles up to eventsPerPass more events. If there may be still more events, it
// defers e.remaining until after the next pass.
func (e *events) remaining() {
	if e.handleBatch() {
		e.r.Defer(e.remaining)
	}
}

// handleBatch handles up to eventsPerPass events. It returns true if there may be more events; the
// caller must then defer a call of e.remaining.
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
