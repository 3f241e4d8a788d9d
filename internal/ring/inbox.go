package ring

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Hook is the link that an object embeds to be queued in an [Inbox]. An object with one hook is in
// at most one inbox, at most one time.
type Hook[T any] struct {
	// next is plain. The pusher writes next before its swap of the inbox's head publishes it; after
	// the swap only the consumer reads and writes it.
	next *T
}

// Next returns the object pushed after this one, among those that one TakeAll returned, or nil.
// Only the consumer may call it, and before the object is pushed again.
func (h *Hook[T]) Next() *T { return h.next }

// Unlink returns what Next returns and clears the link: the object no longer keeps the next one
// alive and may be pushed again. Only the consumer may call it.
func (h *Hook[T]) Unlink() *T {
	model.Yield("unlink")
	n := h.next
	h.next = nil
	return n
}

// Node is the constraint of an [Inbox] of T: a *T that returns its hook.
type Node[T any] interface {
	*T
	// InboxHook returns the object's hook, always the same one.
	InboxHook() *Hook[T]
}

// Inbox is an unbounded queue of objects with many producers and one consumer. The consumer takes
// all objects at once, in the order of pushing. Inbox is a Treiber stack that the consumer always
// empties as a whole; the comment of [IndexStack] explains why it has no ABA problem. The zero
// value is an empty inbox. It must not be copied.
//
// An object belongs to its pusher before Push and to the consumer after TakeAll.
type Inbox[T any, P Node[T]] struct {
	_ [linePad]byte // an inbox is embedded next to words that other goroutines write
	BareInbox[T, P]
	_ pad
}

// BareInbox is an Inbox without the room around it. It is for an owner that has many of them, which are used
// rarely or by the goroutines that also write the words beside it.
type BareInbox[T any, P Node[T]] struct {
	// head is the object pushed last, or nil. A producer swaps its object in, which publishes the
	// object's link and content; the consumer swaps nil in and acquires both.
	head atomic.Pointer[T]
}

// Push appends p. It reports whether the inbox was empty: if so, the caller must wake the consumer,
// because no other producer does. Any goroutine may call it; it does not block or allocate.
func (q *BareInbox[T, P]) Push(p P) (wasEmpty bool) {
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

// TakeAll takes all objects pushed so far and returns the first, or nil if there is none. The hook
// of each object leads to the next one:
//
//	for p := in.TakeAll(); p != nil; {
//		next := p.InboxHook().Unlink()
//		...
//		p = next
//	}
//
// Only the consumer may call it; it does not block or allocate.
func (q *BareInbox[T, P]) TakeAll() *T {
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
func (q *BareInbox[T, P]) Empty() bool { return q.head.Load() == nil }

// Listed is a flag of an object with work. It is set while the object is in an [Inbox] of such
// objects or about to be pushed, so that several pieces of work push the object one time:
//
//	            producer: Enter returns true, then it pushes
//	not listed ────────────────────────────────────────> listed
//	     ^                                                 │
//	     └── consumer: takes the object and reads its ─────┘
//	         link; then Leave; only then takes the work
//
// A producer adds work before Enter. If Enter returns false, the consumer still takes the work: the
// object is in the inbox or about to be pushed, or the consumer has not called Leave yet, and it
// takes the work after Leave. The zero value is not listed.
type Listed struct {
	// The producer that will push the object sets the flag; the consumer clears it; producers read
	// it. Setting it publishes nothing; the push does. The consumer clears the flag before it looks
	// for work, and a producer adds work before it loads the flag: so the consumer sees the work or
	// the producer sees the cleared flag.
	is atomic.Bool
}

// Enter marks the object as listed. It returns true if the object was not listed before: the caller
// then pushes the object. Any goroutine may call it; it does not block or allocate.
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
