package ring

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// IndexQueue is a queue of slot indices with one producer and many consumers, in the order of
// pushing. It has room for a fixed number of indices; the producer must not push more. So it suits
// slots that are in the queue at most once.
//
// Why there is no ABA problem: a consumer replaces the head, which counts all pops ever, and a count
// of 64 bits does not come back. A consumer may read an entry that the producer overwrites. The
// producer overwrites an entry only after the head has passed it, so the swap of that consumer fails.
type IndexQueue struct {
	// tail counts the pushes. The producer writes it, which publishes the entry and everything that
	// the producer wrote to the slot. Consumers read it.
	tail atomic.Uint64
	_    pad
	// head counts the pops. A consumer's swap of head makes the popped index its own.
	head    atomic.Uint64
	_       pad
	entries []link // the index of push n is in entries[n & mask]; the producer writes it
	mask    uint64
}

// NewIndexQueue returns an empty queue with room for n indices. It panics unless 0 < n < 65535.
func NewIndexQueue(n int) *IndexQueue {
	checkCount("index queue", n)
	room := 1
	for room < n {
		room *= 2
	}
	return &IndexQueue{entries: make([]link, room), mask: uint64(room - 1)}
}

// Push appends i. There must be room. Only the producer may call it; it does not block or allocate.
func (q *IndexQueue) Push(i uint32) {
	t := q.tail.Load()
	q.entries[t&q.mask].store(i)
	model.Yield("queue.push")
	q.tail.Store(t + 1)
}

// Pop takes the oldest index; it returns false if the queue is empty. Any goroutine may call it; it
// does not block or allocate.
func (q *IndexQueue) Pop() (uint32, bool) {
	for {
		model.Fresh("queue.pop")
		h := q.head.Load()
		model.Yield("queue.pop.tail")
		if h == q.tail.Load() {
			return 0, false
		}
		model.Yield("queue.pop.entry")
		i := q.entries[h&q.mask].load()
		model.Yield("queue.pop.swap")
		if q.head.CompareAndSwap(h, h+1) {
			return i, true
		}
	}
}

// PopN takes up to len(is) indices, oldest first, with one change of the shared word, and returns
// their number. Any goroutine may call it; it does not block or allocate.
func (q *IndexQueue) PopN(is []uint32) int {
	for {
		model.Fresh("queue.popn")
		h := q.head.Load()
		model.Yield("queue.popn.tail")
		n := min(q.tail.Load()-h, uint64(len(is)))
		if n == 0 {
			return 0
		}
		model.Yield("queue.popn.entry")
		for k := range n {
			is[k] = q.entries[(h+k)&q.mask].load()
		}
		model.Yield("queue.popn.swap")
		if q.head.CompareAndSwap(h, h+n) {
			return int(n)
		}
	}
}

// Empty reports whether the queue is empty right now. Any goroutine may call it.
func (q *IndexQueue) Empty() bool {
	model.Yield("queue.empty")
	return q.head.Load() == q.tail.Load()
}
