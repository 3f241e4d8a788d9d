package ring

import (
	"fmt"
	"math/bits"
	"reflect"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// MPSC is a bounded queue of values with many producers and one consumer, after Vyukov's bounded
// queue. The sequence number of a place, seq, shows which side owns the place at position p:
//
//	seq == p         free, for the producer that takes position p
//	seq == p+1       filled, for the consumer
//	seq == p+size    free again, for the next round
//
// A producer that is descheduled between taking a place and filling it delays the elements behind
// that place, but blocks no caller: Pop returns false. Wake the consumer after a Push, not before.
type MPSC[T any] struct {
	places []place[T]
	mask   uint64
	limit  uint64
	_      [linePad - 40]byte

	// tail is the position of the next push, combined with closedBit. A producer takes a place by
	// incrementing tail with a CAS; Close sets closedBit.
	tail atomic.Uint64
	_    pad

	// head is the position of the next pop, or, if limit is the number of places, at most headEvery-1
	// less. The consumer writes it. Len reads it, and so do
	// producers if limit is less than the number of places.
	head atomic.Uint64
	next uint64 // the position of the next pop; consumer only
	_    [linePad - 16]byte
}

// headEvery is the interval, in pops, at which the consumer writes head if no producer needs it. Each
// write costs an XCHG.
const headEvery = 16

type place[T any] struct {
	// seq is described at MPSC. A producer's store publishes v; the consumer's store publishes that
	// v was cleared.
	seq atomic.Uint64
	v   T
}

// closedBit is larger than any position: at one push per nanosecond, positions reach it in 292
// years.
const closedBit = 1 << 63

// PushResult is the result of a Push.
type PushResult uint8

// The results of a Push.
const (
	Pushed PushResult = iota
	Full
	Closed
)

// NewMPSC returns an empty queue for n elements. It panics unless 0 < n <= 2^31.
func NewMPSC[T any](n int) *MPSC[T] {
	if n <= 0 || int64(n) > 1<<31 {
		panic(fmt.Sprintf("ring: queue of %d elements", n))
	}
	size := placesFor(n)
	q := &MPSC[T]{places: make([]place[T], size), mask: size - 1, limit: uint64(n)}
	for i := range q.places {
		q.places[i].seq.Store(uint64(i))
	}
	return q
}

// placesFor returns the number of places of a queue for n elements: a power of two, and at least two. With one
// place, p+1 and p+size are equal, and seq cannot show the owner.
func placesFor(n int) uint64 { return max(uint64(1)<<bits.Len64(uint64(n)-1), 2) }

// MPSCFits reports whether the places of a queue for n elements take at most so many bytes. n is what NewMPSC
// takes.
func MPSCFits[T any](n int, bytes uint64) bool {
	return placesFor(n) <= bytes/uint64(reflect.TypeFor[place[T]]().Size())
}

// Push appends v unless the queue is full or closed. Any goroutine may call it; it does not block
// or allocate. The elements of one goroutine come out in the order it pushed them.
func (q *MPSC[T]) Push(v *T) PushResult {
	for {
		t := q.tail.Load()
		if t&closedBit != 0 {
			return Closed
		}
		model.Yield("mpsc.push")
		p := &q.places[t&q.mask]
		switch turn := p.seq.Load(); {
		case turn == t && (q.limit == q.mask+1 || t-q.head.Load() < q.limit):
			if q.tail.CompareAndSwap(t, t+1) {
				p.v = *v
				p.seq.Store(t + 1)
				return Pushed
			}
		case q.tail.Load() == t: // no other push meanwhile: the queue is full
			return Full
		}
	}
}

// Pop moves the oldest element to v, and clears its place. It returns false if there is no element or the
// oldest one is still being pushed. Only the consumer may call it; it does not block or allocate.
func (q *MPSC[T]) Pop(v *T) bool {
	h := q.next
	p := &q.places[h&q.mask]
	if p.seq.Load() != h+1 {
		return false
	}
	var zero T
	*v, p.v = p.v, zero
	q.next = h + 1
	if q.limit <= q.mask || q.next%headEvery == 0 {
		q.head.Store(h + 1)
	}
	p.seq.Store(h + q.mask + 1)
	return true
}

// Close makes every later Push fail; elements in the queue can still be popped. It is idempotent,
// does not block, and any goroutine may call it.
func (q *MPSC[T]) Close() { q.tail.Or(closedBit) }

// Len returns the number of elements, including those being pushed. It is exact for the consumer of
// a closed queue, and an estimate otherwise. Any goroutine may call it.
func (q *MPSC[T]) Len() int {
	// Load head first: tail never falls below a head that was loaded earlier.
	h := q.head.Load()
	for range headEvery - 1 { // skip the places that were popped since head was written
		if seq := q.places[h&q.mask].seq.Load(); seq <= h+1 {
			break
		}
		h++
	}
	return int(min(q.tail.Load()&^closedBit-h, q.limit))
}

// Cap returns the number of elements that fit.
func (q *MPSC[T]) Cap() int { return int(q.limit) }
