package sys

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
)

var (
	// ErrPollerClosed means that the poller is closed.
	ErrPollerClosed = errors.New("sys: poller is closed")
	// ErrNoKeys means that Wait was called without room for keys.
	ErrNoKeys = errors.New("sys: wait without room for keys")
	// ErrAttached means that a key is already in use in a poller.
	ErrAttached = errors.New("sys: key is already attached")
	// ErrNotAttached means that a key is not in use in a poller.
	ErrNotAttached = errors.New("sys: key is not attached")
	// ErrNoFD means that a source can be polled only by its descriptor, which the portable build
	// cannot do.
	ErrNoFD = errors.New("sys: source cannot be polled")
)

// Source is an object that a [Poller] can sleep on, in one of two ways.
//
// A source whose events come from this process announces them: it keeps the function passed to
// Notify and calls it once from within Notify, which identifies it to the poller, and then
// whenever an event was queued. This is the faster way: it enters no kernel, and the sleeper is
// made runnable at once.
//
// A source whose events come from the kernel has a descriptor and ignores Notify. Its events pass
// through Go's poller, which a program that keeps all processors busy with runnable goroutines
// checks only every 10 ms.
type Source interface {
	// FD returns a descriptor that polls readable while there is something to take, or -1 if the
	// source has none and announces itself. The source owns it and keeps it open until it is
	// detached from all pollers. A poller does not call FD on a source that announces itself.
	FD() int
	// Notify sets the function to call: from any goroutine, after the event was published by an
	// atomic operation or under a lock that taking it also uses. ring does not block and does not
	// call back into the source. nil removes it. There is at most one such function at a time, so
	// a source that announces itself belongs to at most one poller.
	Notify(ring func())
}

// mark is the readiness of one source without a descriptor.
type mark struct {
	hook ring.Hook[mark]
	key  uint32 // immutable
	// queued is set while the mark is in the inbox or on the ready list. Set by announce, whose
	// winner pushes; cleared by take, before it reports the key: an announcement that finds it
	// set is covered by that report, because the owner drains the source only afterwards.
	queued atomic.Bool
	// gone is set by Detach; read by take.
	gone atomic.Bool
	// announces is set once the source has called the function. Attach reads it right after
	// Notify.
	announces atomic.Bool
}

// InboxHook links the mark into the inbox of its set.
func (m *mark) InboxHook() *ring.Hook[mark] { return &m.hook }

// attachment is a source in a poller.
type attachment struct {
	source Source
	mark   *mark // nil for one that is polled by its descriptor
	fd     int   // the descriptor, if mark is nil
}

// attachmentLocked returns the source with that key. p.mu is held.
func (p *Poller) attachmentLocked(key uint32) (attachment, error) {
	a, ok := p.attached[key]
	switch {
	case p.closed.Load():
		return a, ErrPollerClosed
	case !ok:
		return a, fmt.Errorf("%w: %d", ErrNotAttached, key)
	}
	return a, nil
}

// silence removes the source's function.
func (a attachment) silence() {
	a.mark.gone.Store(true)
	a.source.Notify(nil)
}

// listen makes s announce its events in p, if it can.
func (p *Poller) listen(s Source, key uint32) *mark {
	m := &mark{key: key}
	s.Notify(func() {
		if !m.announces.Load() {
			m.announces.Store(true)
		}
		p.announce(m)
	})
	return m
}

// announce makes Wait report the key of m.
func (p *Poller) announce(m *mark) {
	if p.marks.announce(m) {
		p.Wake()
	}
}

// markSet collects announcements from any goroutine for one waiter.
type markSet struct {
	inbox ring.Inbox[mark, *mark]
	// ready holds marks taken from the inbox and not yet reported, for lack of room. Touched by
	// the waiter only.
	ready *mark
}

// announce queues m and reports whether the waiter must be woken.
func (s *markSet) announce(m *mark) bool {
	if m.queued.Load() || !m.queued.CompareAndSwap(false, true) {
		return false
	}
	s.inbox.Push(m)
	return true
}

// take fills keys with announced ones, oldest first. Waiter only.
func (s *markSet) take(keys []uint32) (n int) {
	for n < len(keys) {
		if s.ready == nil {
			if s.ready = s.inbox.TakeAll(); s.ready == nil {
				break
			}
		}
		m := s.ready
		s.ready = m.hook.Unlink() // before queued is cleared: then m may be pushed again
		m.queued.Store(false)
		if !m.gone.Load() {
			keys[n] = m.key
			n++
		}
	}
	return n
}
