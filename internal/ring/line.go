package ring

import (
	"errors"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/sentinel"
)

// ErrClosed reports that the slots were closed. ErrDone reports that the channel done of a wait was closed before a
// slot came.
var (
	ErrClosed = sentinel.Closed
	ErrDone   = errors.New("ring: the wait was given up")
)

// line holds the goroutines that wait, in order, for a slot of [Slots]. A goroutine that puts a slot back then hands
// free slots out to the waiters, through a channel of the Go runtime.
//
//	        the list has one, no waiters
//	start ----------------------------------> has it ----------> put:
//	  |                                          ^         on the list; while there are
//	  | waiting+1                                |         waiters: off it, waiting-1,
//	  v              handed                      |         handed
//	waits ---------------------------------------+
//	  |
//	  | done or closed
//	  v
//	leaves --- waiting > 0: waiting-1 ------------> error
//	  |        (one waiter fewer; no slot was meant for this one)
//	  |
//	  +------- waiting = 0: a slot is on its way to each waiter,
//	           also to this one: take it, put it --> error
//
// Let W be the number of goroutines in "waits" or "leaves", and K the number of slots handed or
// about to be handed. The first invariant is W = waiting + K.
//
// The second invariant is that no slot stays free while a goroutine waits: if the list has a slot
// while waiting > 0, some goroutine is about to hand it out. A goroutine that puts a slot back reads
// waiting afterwards; a goroutine that raises waiting from 0 to 1 reads the list afterwards. If
// both happen at once, at least one of the two goroutines sees the other. handOut goes on until the
// list is empty or there are no waiters.
//
// A waiter that leaves with waiting = 0 waits until a slot arrives. The goroutine that hands the
// slot out is then between decrementing waiting and sending: that takes some instructions, or
// longer if the scheduler preempts the goroutine there. Nothing else waits for another goroutine's
// step.
type line struct {
	// waiting is described above. Wait and handOut write it; goroutines read
	// it before they take from the list. It publishes nothing.
	waiting atomic.Int64
	_       pad

	// room is made by the first goroutine that waits, before it raises waiting and before it reads closed. So
	// a goroutine that finds waiting above 0 also finds the room. Most lines never have a waiter.
	room atomic.Pointer[waitRoom]
	// closed is set by Close before Close reads room. So either Close finds a waiter's room, or the waiter
	// finds that the line is closed.
	closed atomic.Bool
}

// waitRoom has the channels of a line.
type waitRoom struct {
	handed chan uint32   // as many places as slots: sending never blocks
	done   chan struct{} // closed by Close
}

// enter returns the room, and makes it for n slots if this is the first wait. Any goroutine may call it.
func (l *line) enter(n int) *waitRoom {
	if room := l.room.Load(); room != nil {
		return room
	}
	l.room.CompareAndSwap(nil, &waitRoom{make(chan uint32, n), make(chan struct{})})
	return l.room.Load()
}

// Wait takes a slot, and waits for one if none is free. Waiters are served in order, as a channel of the Go runtime
// serves its receivers; a newcomer never overtakes. Any goroutine may call it. Only the first call allocates. Closing
// done ends the wait; a nil done never ends it. Wait takes a channel and not a context, because a context's methods may
// be user code, which could end the goroutine while it is counted as waiting.
//
// Errors: [ErrDone] if done is closed first, and [ErrClosed]. With an error the caller has no slot,
// and none was lost. Like Put, Wait panics if it finds that a slot was given back twice.
func (s *Slots) Wait(done <-chan struct{}) (i uint32, err error) {
	room := s.enter(s.list.Cap())
	if s.closed.Load() {
		return 0, ErrClosed
	}
	if s.waiting.Add(1) == 1 {
		s.handOut()
	}
	select {
	case i = <-room.handed:
		return i, nil
	case <-done:
		err = ErrDone
	case <-room.done:
		err = ErrClosed
	}
	if !s.claimWaiter() { // a slot is on its way to every waiter: give one back
		s.Put(<-room.handed)
	}
	return 0, err
}

// claimWaiter decrements waiting. It returns false if waiting is 0: a slot is on its way to every
// waiter.
func (l *line) claimWaiter() bool {
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

// handOut moves free slots to the waiters. It panics if the channel handed is full: a slot was given back twice.
func (s *Slots) handOut() {
	for s.waiting.Load() > 0 {
		i, ok := s.list.Get()
		if !ok {
			return
		}
		if !s.claimWaiter() {
			s.Put(i) // a waiter may have come just now: Put looks for waiters again
			return
		}
		select {
		case s.room.Load().handed <- i:
		default:
			panic("ring: a slot was given back twice")
		}
	}
}

// Waiting returns the number of goroutines that wait right now and have no slot on its way to them.
func (l *line) Waiting() int { return int(l.waiting.Load()) }

// Close makes all present and later waits fail; slots in use may still be given back. It is
// idempotent, does not block, and any goroutine may call it.
func (l *line) Close() {
	if l.closed.CompareAndSwap(false, true) {
		if room := l.room.Load(); room != nil {
			close(room.done)
		}
	}
}
