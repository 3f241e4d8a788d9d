package ring

import (
	"sync"
	"sync/atomic"
)

// stackHandover is what the reactor does.
type stackHandover struct{ *IndexStack }

func (s *stackHandover) push(_ int, i uint32) { s.Push(i) }
func (s *stackHandover) half(_ int, i uint32, pause func()) {
	for {
		h := s.head.Load()
		s.next[i] = h
		pause()
		if s.head.CompareAndSwap(h, i) {
			return
		}
		pause = func() {}
	}
}
func (s *stackHandover) take(dst []uint32) int {
	i, _, n := s.TakeAll()
	for k := range n {
		dst[k] = i
		i = s.Next(i)
	}
	return n
}

// ringHandover is Vyukov's bounded ring.
type ringHandover struct{ *MPSC[uint32] }

func (q ringHandover) push(_ int, i uint32) { q.Push(i) }
func (q ringHandover) half(_ int, i uint32, pause func()) {
	t := q.tail.Load()
	for !q.tail.CompareAndSwap(t, t+1) {
		t = q.tail.Load()
	}
	pause()
	p := &q.places[t&q.mask]
	p.v = i
	p.turn.Store(t + 1)
}
func (q ringHandover) take(dst []uint32) (n int) {
	for n < len(dst) {
		v, ok := q.Pop()
		if !ok {
			break
		}
		dst[n] = v
		n++
	}
	return n
}

// chain is Vyukov's linked list, its links in an array: a producer swaps itself in, and
// then links itself behind the one before. The last node taken stays as its stub.
type chain struct {
	tail atomic.Uint32
	_    pad
	head uint32 // the stub; the consumer's
	_    pad
	// node k's successor; written by whoever came behind it, read by the consumer. A
	// node is not the slot, since the last one taken stays: nodes are handed round.
	next []atomic.Uint32
	slot []uint32
	free *FreeList
}

func newChain(n int) *chain {
	c := &chain{next: make([]atomic.Uint32, n+1), slot: make([]uint32, n+1), free: NewFreeList(n + 1)}
	c.head, _ = c.free.Get()
	c.next[c.head].Store(none)
	c.tail.Store(c.head)
	return c
}

func (c *chain) push(p int, i uint32) { c.half(p, i, nil) }
func (c *chain) half(_ int, i uint32, pause func()) {
	k, ok := c.free.Get()
	if !ok {
		panic("more nodes than slots are out")
	}
	c.slot[k] = i
	c.next[k].Store(none)
	before := c.tail.Swap(k)
	if pause != nil {
		pause()
	}
	c.next[before].Store(k)
}
func (c *chain) take(dst []uint32) (n int) {
	for n < len(dst) {
		k := c.next[c.head].Load()
		if k == none {
			break
		}
		dst[n] = c.slot[k]
		n++
		c.free.Put(c.head)
		c.head = k
	}
	return n
}

// lanes is a ring for each producer, which the consumer asks in turn.
type lanes []lane

type lane struct {
	buf  []uint32
	tail atomic.Uint64 // written by the producer: publishes what is below
	_    pad
	head uint64 // the consumer's: there are no more indices than places, so nobody asks
	_    pad
}

func newLanes(producers, n int) lanes {
	l := make(lanes, producers)
	for k := range l {
		l[k].buf = make([]uint32, n)
	}
	return l
}

func (l lanes) push(p int, i uint32) { l.half(p, i, nil) }
func (l lanes) half(p int, i uint32, pause func()) {
	q := &l[p]
	t := q.tail.Load()
	q.buf[t%uint64(len(q.buf))] = i
	if pause != nil {
		pause()
	}
	q.tail.Store(t + 1)
}
func (l lanes) take(dst []uint32) (n int) {
	for k := range l {
		q := &l[k]
		for t := q.tail.Load(); q.head < t && n < len(dst); q.head++ {
			dst[n] = q.buf[q.head%uint64(len(q.buf))]
			n++
		}
	}
	return n
}

// chanHandover is a channel. Its lock is the Go runtime's: nobody of ours stops inside.
type chanHandover chan uint32

func (c chanHandover) push(_ int, i uint32) { c <- i }
func (c chanHandover) half(_ int, i uint32, pause func()) {
	pause()
	c <- i
}
func (c chanHandover) take(dst []uint32) (n int) {
	for n < len(dst) {
		select {
		case dst[n] = <-c:
			n++
		default:
			return n
		}
	}
	return n
}

// lockedHandover is a slice under a mutex, which the consumer takes away.
type lockedHandover struct {
	mu          sync.Mutex
	full, spare []uint32
}

func (l *lockedHandover) push(p int, i uint32) { l.half(p, i, nil) }
func (l *lockedHandover) half(_ int, i uint32, pause func()) {
	l.mu.Lock()
	if pause != nil {
		pause()
	}
	l.full = append(l.full, i)
	l.mu.Unlock()
}
func (l *lockedHandover) take(dst []uint32) int {
	l.mu.Lock()
	l.full, l.spare = l.spare[:0], l.full
	l.mu.Unlock()
	return copy(dst, l.spare)
}
