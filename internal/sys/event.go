package sys

import "sync/atomic"

// Event is a flag that one side raises and another sleeps on, through a [Poller] or a descriptor:
// it implements [Source]. It counts signals until they are drained. Without a descriptor a signal
// enters no kernel, so the descriptor is made only when FD is called.
//
//	lowered (count 0) --Signal--> raised (count n) --Signal--> raised (n+1)
//	lowered <--Drain-- raised      the descriptor is readable while raised
//
// The Signal that raises writes to the descriptor, and Drain reads it before it takes the count.
// So in any interleaving a raised event has a readable descriptor or a Signal about to make it
// so; a lowered one may be readable once spuriously.
type Event struct {
	// count is the number of signals. Signal increments it before it announces; Drain takes it.
	count atomic.Uint64
	// ring is the function passed to Notify last, nil for none. Written by Notify, read by Signal
	// after it counted. Notify calls it once after writing, so that no signal is missed in
	// between.
	ring atomic.Pointer[func()]
	// closed is set by Close; read by the others.
	closed atomic.Bool
	// fd is the descriptor, if FD was called.
	fd lazyFD
}

// NewEvent makes an event that is not raised.
func NewEvent() (*Event, error) { return &Event{}, nil }

// FD returns a descriptor that is readable while the event is raised. The first call makes it,
// and adds a write to each later raising; a [Poller] does not need it. It is -1 in the portable
// build, after Close, and if the system has no descriptor left. The event owns it; it is valid
// until Close. Any goroutine may call it.
//
// Implements: eventfd(2).
func (e *Event) FD() int {
	if e.closed.Load() {
		return -1
	}
	fd := e.fd.open()
	if e.count.Load() > 0 {
		e.fd.raise()
	}
	return fd
}

// Notify calls ring now and at each signal, from the goroutine that signals; nil ends that.
func (e *Event) Notify(ring func()) {
	if ring == nil {
		e.ring.Store(nil)
		return
	}
	e.ring.Store(&ring)
	ring()
}

// Signal raises the event. Any goroutine may call it, also after Close, when it
// has no effect. It does not block or allocate.
func (e *Event) Signal() {
	if e.closed.Load() {
		return
	}
	if e.count.Add(1) == 1 {
		e.fd.raise()
	}
	if ring := e.ring.Load(); ring != nil {
		(*ring)()
	}
}

// Drain lowers the event and returns the number of signals, 0 if it was not raised or is closed.
// Any goroutine may call it; it does not block or allocate.
func (e *Event) Drain() uint64 {
	if e.closed.Load() {
		return 0
	}
	e.fd.lower()
	return e.count.Swap(0)
}

// Close ends the event, and closes its descriptor after the calls that use it right now. Detach
// the event from its poller first. It is idempotent, and any goroutine may call it.
func (e *Event) Close() error {
	e.closed.Store(true)
	return e.fd.close()
}
