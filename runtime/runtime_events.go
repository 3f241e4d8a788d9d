package runtime

import "github.com/verbena-rdma/verbena/reactor"

// eventsPerTurn is how many connection events, or asynchronous ones, one turn handles.
// One of a request that is refused takes some 3 µs. The rest is for the next turns.
const eventsPerTurn = 4

// events takes the events of a source, some in each turn. The holder's.
type events struct {
	r *reactor.Reactor
	// next handles one event. It reports whether there was one.
	next func() bool
	// queued says that the rest is going to be taken: the source has told of it and need
	// not do so again.
	queued bool
}

// take handles the next events. It is what the source's Watch calls.
func (e *events) take() {
	if !e.queued && e.some() {
		// What is deferred now runs before this turn, as this did; what that defers, before
		// the next.
		e.r.Defer(func() { e.r.Defer(e.remaining) })
	}
}

// remaining goes on.
func (e *events) remaining() {
	if e.some() {
		e.r.Defer(e.remaining)
	}
}

// some handles what one turn does. It reports whether there may be more: then rest must
// be called.
func (e *events) some() bool {
	e.queued = false
	for range eventsPerTurn {
		if !e.next() {
			return false
		}
	}
	e.queued = true
	return true
}

// takeAll handles all there are.
func (e *events) takeAll() {
	for e.next() {
	}
}
