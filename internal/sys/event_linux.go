//go:build linux && !portable

package sys

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Event is a flag that one side raises and another sleeps on, by way of a
// [Poller]: it implements [Source]. It counts signals until they are drained.
type Event struct{ ref fdRef }

// one is what a signal writes; shared and never changed.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// NewEvent makes an event that is not raised. It holds a descriptor until Close.
//
// Implements: eventfd(2).
func NewEvent() (*Event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("sys: eventfd: %w", err)
	}
	return &Event{ref: fdRef{fd: fd}}, nil
}

// FD is the descriptor, readable while the event is raised; -1 in the portable
// build. The event owns it; it is valid until Close.
func (e *Event) FD() int { return e.ref.fd }

// Notify has no effect: the descriptor tells.
func (e *Event) Notify(func()) {}

// Signal raises the event. Any goroutine may call it, also after Close, when it
// has no effect. It does not block or allocate.
func (e *Event) Signal() {
	if !e.ref.acquire() {
		return
	}
	defer e.ref.release()
	for {
		// EAGAIN: the counter is full, so the event is raised as it is. Other
		// errors cannot be: the descriptor is an open eventfd.
		if _, err := unix.Write(e.ref.fd, one); err != unix.EINTR {
			return
		}
	}
}

// Drain lowers the event and returns how many signals there were, 0 if it was
// not raised or is closed. Any goroutine may call it; it does not block or
// allocate.
func (e *Event) Drain() uint64 {
	if !e.ref.acquire() {
		return 0
	}
	defer e.ref.release()
	var buf [8]byte
	for {
		n, err := unix.Read(e.ref.fd, buf[:])
		switch {
		case err == unix.EINTR:
		case err != nil || n != len(buf):
			return 0
		default:
			return binary.NativeEndian.Uint64(buf[:])
		}
	}
}

// Close closes the descriptor, after those who are using it right now. Detach
// the event from its poller first. It is idempotent, and any goroutine may call
// it.
func (e *Event) Close() error { return e.ref.close() }
