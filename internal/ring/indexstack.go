package ring

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// none marks the end of a list and an empty head. Indices stay below it.
const none = math.MaxUint32

// IndexStack is a queue of slot indices with many producers and one consumer,
// who takes everything there is in the order of pushing. It is an intrusive
// Treiber stack: the links stand in an array beside the slots. An index may be
// on the stack at most once (twice gives some indices twice and loses others, and
// is not noticed); it belongs to its pusher before Push, and to the
// consumer after TakeAll.
//
// Why there is no ABA problem: the classic stack fails in pop, which swaps the
// head for a link that it read earlier from a node that meanwhile left and came
// back. Nobody pops here. The consumer swaps the head for "empty"
// whatever it holds, and a push only claims "what lies below me is the stack
// whose top is h": if h left and came back in between, that is still true.
type IndexStack struct {
	// head is the last index pushed, or none. Producers swap their index in,
	// which publishes the link of that index and all they wrote to the slot;
	// the consumer swaps none in and acquires both.
	head atomic.Uint32
	_    [linePad - 4]byte
	// next[i] is the index below i, none at the bottom; or, behind the last of a
	// list that was taken, none. Plain: it belongs to whoever has i, its pusher
	// until the swap of head publishes it, and then the consumer, who turns the
	// order round. (An atomic store would be an XCHG more for each push.)
	next []uint32
}

// NewIndexStack makes an empty stack for the indices 0 to n-1. It panics unless
// 0 < n < 2^32-1.
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

// Push puts i, which must not be on the stack, on top. It reports whether the
// stack was empty: then nobody else has told the consumer, and the caller rings
// the bell. Any goroutine may call it; it does not block or allocate.
func (s *IndexStack) Push(i uint32) (wasEmpty bool) { return s.PushAll(i, i) }

// PushAll is Push for first, what is Over it, and so on up to last, with one change of
// the shared word: nobody's are between them.
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

// Over makes i the one pushed after below, where both are the caller's.
func (s *IndexStack) Over(i, below uint32) { s.next[i] = below }

// TakeAll takes everything pushed so far: n indices, beginning with first, each
// followed by its Next, up to last, in the order of pushing. With n == 0 first and last
// mean nothing. Only the consumer may call it; it does not block or allocate. Read
// Next(i) before i can be pushed again.
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

// Next is the index pushed after i, among those that one TakeAll gave. After the
// last of them it means nothing; count to n. Only the consumer may call it.
func (s *IndexStack) Next(i uint32) uint32 { return s.next[i] }

// Join has next follow last, where both are the consumer's: the last of what one TakeAll
// gave, and the first of another. Only the consumer may call it.
func (s *IndexStack) Join(last, next uint32) { s.next[last] = next }

// Empty tells whether nothing is on the stack right now. Any goroutine may call
// it.
func (s *IndexStack) Empty() bool {
	model.Yield("stack.empty")
	return s.head.Load() == none
}
