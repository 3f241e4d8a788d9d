package ring

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// IndexStack is a queue of slot indices with many producers and one consumer. The consumer takes
// all indices at once, in the order of pushing. IndexStack is an intrusive Treiber stack: its links
// are [Links]. An index may be on the stack at most one time; if it is pushed
// twice, the stack returns some indices twice and loses others, undetected. An index belongs to its
// pusher before Push, and to the consumer after TakeAll.
//
// Why there is no ABA problem: in the classic stack, pop replaces the head with a link that it read
// earlier, although the head's node may have left and come back meanwhile. This stack has no pop.
// The consumer replaces any head with "empty". A push only needs that the stack below its index has
// the top h, which is still true if h has left and come back meanwhile.
type IndexStack struct {
	// head is the last index pushed, or the constant none. A producer swaps its index in, which
	// publishes the link of that index and everything that the producer wrote to the slot; the
	// consumer swaps none in and acquires both.
	head atomic.Uint32
	_    [linePad - 4]byte
	// next[i] is the index below i, or the constant none at the bottom. In a list that TakeAll
	// returned, next[i] is the index after i, or none after the last. next[i] belongs to the pusher of i
	// until its swap of head publishes it, and then to the consumer.
	next Links
}

// NewIndexStack returns an empty stack for the slots of links.
func NewIndexStack(links Links) *IndexStack {
	s := &IndexStack{next: links}
	s.head.Store(none)
	return s
}

// Push puts i, which must not be on the stack, on top. It reports whether the stack was empty: if
// so, the caller must wake the consumer, because no other producer does. Any goroutine may call it;
// it does not block or allocate.
func (s *IndexStack) Push(i uint32) (wasEmpty bool) { return s.PushAll(i, i) }

// PushAll pushes the chain of indices that Over built, from first to last, with one change of the
// shared word. No other producer's indices come between them. Otherwise it is like Push.
func (s *IndexStack) PushAll(first, last uint32) (wasEmpty bool) {
	for {
		model.Fresh("stack.push")
		h := s.head.Load()
		s.next[first].store(h)
		model.Yield("stack.push.swap")
		if s.head.CompareAndSwap(h, last) {
			return h == none
		}
	}
}

// Over makes i the index pushed after below; the caller owns both.
func (s *IndexStack) Over(i, below uint32) { s.next[i].store(below) }

// TakeAll takes all indices pushed so far and returns their number n, the first and the last, in
// the order of pushing. Links.Next leads from each index to the following one; read Next(i) before i can
// be pushed again. If n is 0, first and last mean nothing. Only the consumer may call it; it does
// not block or allocate.
func (s *IndexStack) TakeAll() (first, last uint32, n int) {
	model.Yield("stack.take")
	if s.head.Load() == none { // a load is far cheaper than a swap
		return none, none, 0
	}
	model.Yield("stack.take.swap")
	i := s.head.Swap(none)
	first, last = none, i
	for i != none {
		below := s.next[i].load()
		s.next[i].store(first)
		first, i = i, below
		n++
	}
	return first, last, n
}

// Empty reports whether the stack is empty right now. Any goroutine may call it.
func (s *IndexStack) Empty() bool {
	model.Yield("stack.empty")
	return s.head.Load() == none
}
