package sys

import (
	"errors"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
)

var (
	// ErrPollerClosed says that the poller is closed.
	ErrPollerClosed = errors.New("sys: poller is closed")
	// ErrNoKeys says that Wait was given no room for keys.
	ErrNoKeys = errors.New("sys: wait without room for keys")
	// ErrAttached says that a key is already in use in a poller.
	ErrAttached = errors.New("sys: key is already attached")
	// ErrNotAttached says that a key is not in use in a poller.
	ErrNotAttached = errors.New("sys: key is not attached")
	// ErrNoFD says that a source has no descriptor and no way to notify.
	ErrNoFD = errors.New("sys: source cannot be polled")
)

// Source is something a [Poller] can sleep on.
type Source interface {
	// FD is a descriptor that polls readable while there is something to take,
	// or -1 if the source has none. The source owns it and keeps it open until
	// it is detached from every poller.
	FD() int
	// Notify gives a source without a descriptor the function to call whenever
	// something was queued, and once immediately if something already is; nil
	// ends that. The function may be called from any goroutine, does not
	// block, and does not call back into the source. Sources with a descriptor
	// ignore the call. There is at most one such function at a time, so a
	// source without a descriptor belongs to at most one poller.
	Notify(ring func())
}

// mark is the readiness of one source without a descriptor.
type mark struct {
	hook ring.Hook[mark]
	key  uint32 // immutable
	// queued is set while the mark is in the inbox or on the ready list.
	// Set by announce, whose winner pushes; cleared by take, before it reports
	// the key: an announcement that finds it set is covered by that report,
	// because the owner drains the source only afterwards.
	queued atomic.Bool
	// gone is set by Detach; read by take.
	gone atomic.Bool
}

// InboxHook links the mark into the inbox of its set.
func (m *mark) InboxHook() *ring.Hook[mark] { return &m.hook }

// markSet collects announcements from any goroutine for one waiter.
type markSet struct {
	inbox ring.Inbox[mark, *mark]
	// ready is what was taken from the inbox and not yet reported, because
	// there was no room. Touched by the waiter only.
	ready *mark
}

// announce queues m and reports whether the waiter must be rung.
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
