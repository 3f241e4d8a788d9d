package ring

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// none marks the end of a list and an empty head. Indices stay below it.
const none = math.MaxUint32

// IndexStack is a queue of slot indices with many producers and one consumer, which takes all
// indices at once in the order of pushing. It is an intrusive Treiber stack: the links are in an
// array beside the slots. An index may be on the stack at most once (pushing it twice returns some
// indices twice and loses others, undetected); it belongs to its pusher before Push, and to the
// consumer after TakeAll.
//
// Why there is no ABA problem: the classic stack fails in pop, which swaps the head for a link that
// it read earlier from a node that meanwhile left and came back. This stack has no pop. The
// consumer swaps the head for "empty" whatever it holds, and a push only claims "the stack below me
// is the one whose top is h": if h left and came back in between, that is still true.
type IndexStack struct {
	// head is the last index pushed, or none. Producers swap their index in, which publishes the
	// link of that index and everything they wrote to the slot; the consumer swaps none in and
	// acquires both.
	head atomic.Uint32
	_    [linePad - 4]byte
	// next[i] is the index below i, none at the bottom; none also follows the last of a list that
	// was taken. Plain: it belongs to the owner of i, its pusher until the swap of head publishes
	// it, and then the consumer, which reverses the order. (An atomic store would be one XCHG more
	// for each push.)
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

// PushAll pushes the chain that Over built, from first up to last, with one change of the shared
// word. No other producer's indices are between them.
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

// TakeAll takes all indices pushed so far: n indices, beginning with first, each followed by its
// Next, up to last, in the order of pushing. With n == 0 first and last mean nothing. Only the
// consumer may call it; it does not block or allocate. Read Next(i) before i can be pushed again.
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

// Next returns the index pushed after i, among those that one TakeAll returned. After the last of
// them it means nothing; count to n. Only the consumer may call it.
func (s *IndexStack) Next(i uint32) uint32 { return s.next[i] }

// Join makes next follow last: the last index of one TakeAll and the first of another, both owned
// by the consumer. Only the consumer may call it.
func (s *IndexStack) Join(last, next uint32) { s.next[last] = next }

// Empty reports whether the stack is empty right now. Any goroutine may call it.
func (s *IndexStack) Empty() bool {
	model.Yield("stack.empty")
	return s.head.Load() == none
}
