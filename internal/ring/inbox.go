package ring

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Hook is the link that an object embeds to be queued in an [Inbox]. An object
// with one hook is in at most one inbox, at most once.
type Hook[T any] struct {
	// next is plain: the pusher writes it before the swap of the inbox's head
	// publishes it, the consumer afterwards.
	next *T
}

// Next returns the object pushed after this one, among those that one TakeAll returned, or nil.
// Only the consumer may call it, and before the object is pushed again.
func (h *Hook[T]) Next() *T { return h.next }

// Unlink returns Next and clears the link: the object keeps nothing alive and may be pushed again.
// Only the consumer may call it.
func (h *Hook[T]) Unlink() *T {
	model.Yield("unlink")
	n := h.next
	h.next = nil
	return n
}

// Node is the constraint of an [Inbox] of T: a *T that returns its hook.
type Node[T any] interface {
	*T
	// InboxHook returns the object's link. It must always be the same one.
	InboxHook() *Hook[T]
}

// Inbox is an unbounded queue of objects with many producers and one consumer, which takes all
// objects at once in the order of pushing. It is a Treiber stack that is only ever emptied as a
// whole; [IndexStack] says why that has no ABA problem. The zero value is an empty inbox. It must
// not be copied.
//
// An object belongs to its pusher before Push and to the consumer after TakeAll.
type Inbox[T any, P Node[T]] struct {
	_ [linePad]byte // an inbox is embedded next to words of others
	// head is the object pushed last, or nil. Producers swap theirs in, which
	// publishes its link and content; the consumer swaps nil in and acquires
	// both.
	head atomic.Pointer[T]
	_    pad
}

// Push appends p. It reports whether the inbox was empty: if so, the caller must wake the consumer,
// because no other producer does. Any goroutine may call it; it does not block or allocate.
func (q *Inbox[T, P]) Push(p P) (wasEmpty bool) {
	hook := p.InboxHook()
	for {
		model.Fresh("box.push")
		h := q.head.Load()
		hook.next = h
		model.Yield("box.push.swap")
		if q.head.CompareAndSwap(h, (*T)(p)) {
			return h == nil
		}
	}
}

// TakeAll takes all objects pushed so far and returns the first, or nil. The others follow by their
// hooks:
//
//	for p := in.TakeAll(); p != nil; {
//		next := p.InboxHook().Unlink()
//		...
//		p = next
//	}
//
// Only the consumer may call it; it does not block or allocate.
func (q *Inbox[T, P]) TakeAll() *T {
	model.Yield("box.take")
	if q.head.Load() == nil { // a load is far cheaper than a swap
		return nil
	}
	var first *T
	model.Yield("box.take.swap")
	for p := q.head.Swap(nil); p != nil; {
		hook := P(p).InboxHook()
		below := hook.next
		hook.next = first
		first, p = p, below
	}
	return first
}

// Empty reports whether nothing is queued right now. Any goroutine may call it.
func (q *Inbox[T, P]) Empty() bool { return q.head.Load() == nil }

// Listed says that an object with work is in an [Inbox] of such objects, or about to be pushed, so
// that many pieces of work push it once:
//
//	            producer: Enter returns true, then it pushes
//	not listed ────────────────────────────────────────> listed
//	     ^                                                 │
//	     └── consumer: takes the object and reads its ─────┘
//	         link; then Leave; only then takes the work
//
// A producer adds work before Enter. If Enter returns false the work is taken all the same: another
// producer is about to push the object, or the consumer has not called Leave yet, and takes the
// work after that. The zero value is not listed.
type Listed struct {
	// is: set by the producer that will push, cleared by the consumer, read by producers. Set, it
	// publishes nothing (the push does). The consumer clears it before it looks at the work, and a
	// producer adds work before its load: one of them sees the other.
	is atomic.Bool
}

// Enter reports whether the object was not listed: then the caller pushes it. Any goroutine may
// call it; it does not block or allocate.
func (l *Listed) Enter() bool {
	model.Yield("enter")
	if l.is.Load() { // a load is far cheaper than a swap
		return false
	}
	model.Yield("enter.swap")
	return l.is.CompareAndSwap(false, true)
}

// Leave marks the object as not listed. Only the consumer may call it, after taking the object.
func (l *Listed) Leave() {
	model.Yield("leave")
	l.is.Store(false)
}
