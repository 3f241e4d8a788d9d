package ring

import (
	"errors"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/sentinel"
)

// ErrClosed reports that the credits or slots were closed. ErrDone reports that the channel done of
// a wait was closed before an item came.
var (
	ErrClosed = sentinel.Closed
	ErrDone   = errors.New("ring: the wait was given up")
)

// line holds the goroutines that wait, in order, for an item of a store: a slot of [Slots] or a
// credit of [Credits]. A goroutine that puts an item into the store then hands items out to the
// waiters, through a channel of the Go runtime.
//
//	        the store has one, no waiters
//	start ----------------------------------> has it ----------> put:
//	  |                                          ^         to the store; while there are
//	  | waiting+1                                |         waiters: out of it, waiting-1,
//	  v              handed                      |         handed
//	waits ---------------------------------------+
//	  |
//	  | done or closed
//	  v
//	leaves --- waiting > 0: waiting-1 ------------> error
//	  |        (one waiter fewer; no item was meant for this one)
//	  |
//	  +------- waiting = 0: an item is on its way to each waiter,
//	           also to this one: take it, put it --> error
//
// Let W be the number of goroutines in "waits" or "leaves", and K the number of items handed or
// about to be handed. The first invariant is W = waiting + K.
//
// The second invariant is that no item stays free while a goroutine waits: if the store has an item
// while waiting > 0, some goroutine is about to hand it out. A goroutine that puts an item reads
// waiting afterwards; a goroutine that raises waiting from 0 to 1 reads the store afterwards. If
// both happen at once, at least one of the two goroutines sees the other. handOut goes on until the
// store is empty or there are no waiters.
//
// A waiter that leaves with waiting = 0 waits until an item arrives. The goroutine that hands the
// item out is then between decrementing waiting and sending: that takes some instructions, or
// longer if the scheduler preempts the goroutine there. Nothing else waits for another goroutine's
// step.
type line[T any] struct {
	// waiting is described above. The functions wait, leave and handOut write it; goroutines read
	// it before they take from the store. It publishes nothing.
	waiting atomic.Int64
	_       pad

	items int // the number of items of the store; immutable
	// room is made by the first goroutine that waits, before it raises waiting and before it reads closed. So
	// a goroutine that finds waiting above 0 also finds the room. Most lines never have a waiter.
	room atomic.Pointer[waitRoom[T]]
	// closed is set by Close before Close reads room. So either Close finds a waiter's room, or the waiter
	// finds that the line is closed.
	closed atomic.Bool
}

// waitRoom has the channels of a line.
type waitRoom[T any] struct {
	handed chan T        // as many places as items: sending never blocks
	done   chan struct{} // closed by line.Close
}

// store holds the free items of a line.
type store[T any] interface {
	take() (T, bool)
	// put gives back an item that take returned, and then hands items out to waiters.
	put(T)
}

// enter returns the room, and makes it if this is the first wait. Any goroutine may call it.
func (l *line[T]) enter() *waitRoom[T] {
	if room := l.room.Load(); room != nil {
		return room
	}
	l.room.CompareAndSwap(nil, &waitRoom[T]{make(chan T, l.items), make(chan struct{})})
	return l.room.Load()
}

// wait takes an item of s, and waits for one if there is none. Waiters are served in order, as a
// channel of the Go runtime serves its receivers; a newcomer never overtakes. Only the first call allocates.
// With an error the caller has no item, and none was lost. The channel broken is closed when the
// invariants no longer hold and a leaving waiter may never get the item that it waits for; it may
// be nil.
func (l *line[T]) wait(s store[T], done, broken <-chan struct{}) (v T, err error) {
	room := l.enter()
	if l.closed.Load() {
		return v, ErrClosed
	}
	if l.waiting.Add(1) == 1 {
		l.handOut(s)
	}
	select {
	case v = <-room.handed:
		return v, nil
	case <-done:
		err = ErrDone
	case <-room.done:
		err = ErrClosed
	}
	l.leave(s, room, broken)
	return v, err
}

// leave ends the wait of a goroutine that took no item. If an item is on its way to every waiter,
// leave receives one and gives it back.
func (l *line[T]) leave(s store[T], room *waitRoom[T], broken <-chan struct{}) {
	if !l.claimWaiter() {
		select {
		case v := <-room.handed:
			s.put(v)
		case <-broken:
		}
	}
}

// claimWaiter decrements waiting. It returns false if waiting is 0: an item is on its way to every
// waiter.
func (l *line[T]) claimWaiter() bool {
	for {
		n := l.waiting.Load()
		if n == 0 {
			return false
		}
		if l.waiting.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// handOut moves items from the store to the waiters. It returns false if the channel handed is
// full: an item was given back twice.
func (l *line[T]) handOut(s store[T]) bool {
	for l.waiting.Load() > 0 {
		v, ok := s.take()
		if !ok {
			return true
		}
		if !l.claimWaiter() {
			s.put(v) // a waiter may have come just now: put looks for waiters again
			return true
		}
		select {
		case l.room.Load().handed <- v:
		default:
			return false
		}
	}
	return true
}

// Waiting returns the number of goroutines that wait right now and have no item on its way to them.
func (l *line[T]) Waiting() int { return int(l.waiting.Load()) }

// Close makes all present and later waits fail; items in use may still be given back. It is
// idempotent, does not block, and any goroutine may call it.
func (l *line[T]) Close() {
	if l.closed.CompareAndSwap(false, true) {
		if room := l.room.Load(); room != nil {
			close(room.done)
		}
	}
}
