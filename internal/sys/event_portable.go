//go:build !linux || portable

package sys

import "sync/atomic"

// Event is a flag that one side raises and another sleeps on, by way of a
// [Poller]: it implements [Source]. It counts signals until they are drained.
type Event struct {
	// count is the number of signals; added to by Signal, taken by Drain.
	count atomic.Uint64
	// ring is what Notify was given last, nil for nothing. Written by Notify,
	// read by Signal after it counted; Notify reads count after writing, so at
	// least one of the two sees the other.
	ring atomic.Pointer[func()]
	// closed is set by Close; read by Signal.
	closed atomic.Bool
}

// NewEvent makes an event that is not raised.
func NewEvent() (*Event, error) { return &Event{}, nil }

// FD is -1: the event has no descriptor in the portable build.
func (e *Event) FD() int { return -1 }

// Notify has ring called at each signal, and at once if the event is raised; nil
// ends that.
func (e *Event) Notify(ring func()) {
	if ring == nil {
		e.ring.Store(nil)
		return
	}
	e.ring.Store(&ring)
	if e.count.Load() > 0 {
		ring()
	}
}

// Signal raises the event. Any goroutine may call it, also after Close, when it
// has no effect. It does not block or allocate.
func (e *Event) Signal() {
	if e.closed.Load() {
		return
	}
	e.count.Add(1)
	if ring := e.ring.Load(); ring != nil {
		(*ring)()
	}
}

// Drain lowers the event and returns how many signals there were, 0 if it was
// not raised or is closed. Any goroutine may call it; it does not block or
// allocate.
func (e *Event) Drain() uint64 {
	if e.closed.Load() {
		return 0
	}
	return e.count.Swap(0)
}

// Close makes further signals have no effect. It is idempotent, and any
// goroutine may call it.
func (e *Event) Close() error {
	e.closed.Store(true)
	return nil
}
