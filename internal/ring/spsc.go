package ring

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// SPSC is a bounded queue between one producer and one consumer. Each side
// keeps a copy of the other side's position and looks at the real one only when
// the copy says that there is no room or nothing to take, so that the line which
// carries it moves between cores once per batch, not once per element.
//
// Positions only grow, and wrap with uint64; position p stands in buf[p & mask].
type SPSC[T any] struct {
	buf  []T
	mask uint64
	_    [linePad - 32]byte

	// tail is the position of the next push. Written by the producer: the
	// store publishes the elements below it. Read by the consumer.
	tail     atomic.Uint64
	headSeen uint64 // the producer's copy of head; only it touches this
	_        [linePad - 16]byte

	// head is the position of the next pop. Written by the consumer: the store
	// publishes that the places below it are clear and may be reused. Read by
	// the producer.
	head     atomic.Uint64
	tailSeen uint64 // the consumer's copy of tail; only it touches this
	_        [linePad - 16]byte
}

// NewSPSC makes an empty queue for at least n elements, rounded up to a power
// of two. It panics unless 0 < n <= 2^31.
func NewSPSC[T any](n int) *SPSC[T] {
	if n <= 0 || int64(n) > 1<<31 {
		panic(fmt.Sprintf("ring: queue of %d elements", n))
	}
	size := uint64(1) << bits.Len64(uint64(n)-1)
	return &SPSC[T]{buf: make([]T, size), mask: size - 1}
}

// room is how many elements fit at tail, looking at the real head only if fewer
// than want fit by the copy. Producer only.
func (q *SPSC[T]) room(tail, want uint64) uint64 {
	size := q.mask + 1
	if free := size - (tail - q.headSeen); free >= want {
		return free
	}
	q.headSeen = q.head.Load()
	return size - (tail - q.headSeen)
}

// Push appends v, or reports false if the queue is full. Only the producer may
// call it; it does not block or allocate.
func (q *SPSC[T]) Push(v T) bool {
	t := q.tail.Load()
	if q.room(t, 1) == 0 {
		return false
	}
	q.buf[t&q.mask] = v
	q.tail.Store(t + 1)
	return true
}

// PushN appends as many of vs as fit, first ones first, publishes them
// together, and returns how many. Only the producer may call it; it does not
// block or allocate.
func (q *SPSC[T]) PushN(vs []T) int {
	t := q.tail.Load()
	n := min(uint64(len(vs)), q.room(t, uint64(len(vs))))
	if n == 0 {
		return 0
	}
	k := copy(q.buf[t&q.mask:], vs[:n])
	copy(q.buf, vs[k:n])
	q.tail.Store(t + n)
	return int(n)
}

// filled is how many elements stand at head, looking at the real tail only if
// fewer than want do by the copy. Consumer only.
func (q *SPSC[T]) filled(head, want uint64) uint64 {
	if n := q.tailSeen - head; n >= want {
		return n
	}
	q.tailSeen = q.tail.Load()
	return q.tailSeen - head
}

// Pop takes the oldest element, or reports false if there is none. Its place is
// cleared, so that the queue keeps nothing alive. Only the consumer may call it;
// it does not block or allocate.
func (q *SPSC[T]) Pop() (v T, ok bool) {
	h := q.head.Load()
	if q.filled(h, 1) == 0 {
		return v, false
	}
	var zero T
	p := &q.buf[h&q.mask]
	v, *p = *p, zero
	q.head.Store(h + 1)
	return v, true
}

// PopN moves up to len(dst) of the oldest elements to dst and returns how many.
// Their places are cleared. Only the consumer may call it; it does not block or
// allocate.
func (q *SPSC[T]) PopN(dst []T) int {
	h := q.head.Load()
	n := min(uint64(len(dst)), q.filled(h, uint64(len(dst))))
	if n == 0 {
		return 0
	}
	at := h & q.mask
	k := copy(dst[:n], q.buf[at:])
	clear(q.buf[at : at+uint64(k)])
	rest := q.buf[:n-uint64(k)]
	copy(dst[k:n], rest)
	clear(rest)
	q.head.Store(h + n)
	return int(n)
}

// Len is the number of elements: exact for producer and consumer as to their own
// side, an estimate for others. Any goroutine may call it.
func (q *SPSC[T]) Len() int {
	// Head first: tail is never behind a head that was read before it.
	h := q.head.Load()
	return int(min(q.tail.Load()-h, q.mask+1))
}

// Cap is the number of elements that fit.
func (q *SPSC[T]) Cap() int { return len(q.buf) }

// Empty tells whether nothing is queued right now. Any goroutine may call it.
func (q *SPSC[T]) Empty() bool { return q.head.Load() == q.tail.Load() }
