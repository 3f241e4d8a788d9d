package ring

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// none marks the end of a list and an empty head. Indices stay below it.
const none = math.MaxUint32

// IndexStack is a queue of slot indices with many producers and one consumer. The consumer takes
// all indices at once, in the order of pushing. IndexStack is an intrusive Treiber stack: the links
// are in an array beside the slots. An index may be on the stack at most one time; if it is pushed
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
	// returned, next[i] is the index after i, or none after the last. The words are plain: next[i]
	// belongs to the pusher of i until its swap of head publishes it, and then to the consumer. (An
	// atomic store would cost one XCHG more for each push.)
	next []uint32
}

// NewIndexStack returns an empty stack for the indices 0 to n-1. It panics unless 0 < n < 2^32-1.
func NewIndexStack(n int) *IndexStack {
	checkCount("index stack", n)
	s := &IndexStack{next: make([]uint32, n)}
	s.head.Store(none)
	return s
}

func checkCount(what string, n int) {
	if n <= 0 || uint64(n) >= none {
		panic(fmt.Sprintf("ring: %s of %d indices", what, n))
	}
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
		s.next[first] = h
		model.Yield("stack.push.swap")
		if s.head.CompareAndSwap(h, last) {
			return h == none
		}
	}
}

// Over makes i the index pushed after below; the caller owns both.
func (s *IndexStack) Over(i, below uint32) { s.next[i] = below }

// TakeAll takes all indices pushed so far and returns their number n, the first and the last, in
// the order of pushing. Next leads from each index to the following one; read Next(i) before i can
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
		below := s.next[i]
		s.next[i] = first
		first, i = i, below
		n++
	}
	return first, last, n
}

// Next returns the index pushed after i, among those that one TakeAll returned. For the last of
// them the result means nothing: count up to n. Only the consumer may call it.
func (s *IndexStack) Next(i uint32) uint32 { return s.next[i] }

// Join appends the indices of one TakeAll to those of another: next is the first index of the one,
// last the last index of the other. Only the consumer may call it.
func (s *IndexStack) Join(last, next uint32) { s.next[last] = next }

// Empty reports whether the stack is empty right now. Any goroutine may call it.
func (s *IndexStack) Empty() bool {
	model.Yield("stack.empty")
	return s.head.Load() == none
}
