package ring

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The designs that docs/adr/0009 compares: slots come from one FreeList, and each design hands over
// their indices. To run it again:
//
//	go test -run '^$' -bench Contest ./internal/ring

// contestSlots is the usual depth of a send queue.
const contestSlots = 128

// handover is a design. push is called by producer p; the consumer then gets the indices by take,
// which fills dst. half is a push by a producer that is preempted in the middle, at the most
// harmful point, and runs again when pause returns.
type handover interface {
	push(p int, i uint32)
	half(p int, i uint32, pause func())
	take(dst []uint32) int
}

var contest = []struct {
	name string
	make func(producers int) handover
}{
	{"stack taken whole", func(int) handover { return &stackHandover{NewIndexStack(contestSlots)} }},
	{"bounded ring", func(int) handover { return ringHandover{NewMPSC[uint32](contestSlots)} }},
	{"linked list", func(int) handover { return newChain(contestSlots) }},
	{"ring per producer", func(n int) handover { return newLanes(n, contestSlots) }},
	{"channel", func(int) handover { return make(chanHandover, contestSlots) }},
	{"mutex and slice", func(int) handover { return new(lockedHandover) }},
}

// contestItem is the content of a slot, on a line of its own like a work request.
type contestItem struct {
	from, seq int
	at        time.Time
	back      *atomic.Int64 // the waiting producer's: how long the consumer took
	_         [linePad - 56]byte
}

// BenchmarkContest measures the time per index, from taking its slot until the consumer has it and
// gives the slot back, and how many the consumer gets at a time. It checks the order.
func BenchmarkContest(b *testing.B) {
	for _, c := range contest {
		for _, producers := range []int{1, 2, 4, 16} {
			b.Run(fmt.Sprintf("%s/%d", c.name, producers), func(b *testing.B) { contestRate(b, c.make(producers), producers) })
		}
	}
}

func contestRate(b *testing.B, h handover, producers int) {
	free, items := NewFreeList(contestSlots), make([]contestItem, contestSlots)
	share := b.N/producers + 1
	b.ResetTimer()
	var done sync.WaitGroup
	for p := range producers {
		done.Go(func() {
			for seq := range share {
				i, ok := free.Get()
				for !ok {
					runtime.Gosched()
					i, ok = free.Get()
				}
				items[i].from, items[i].seq = p, seq
				h.push(p, i)
			}
		})
	}
	dst, next, batches := make([]uint32, contestSlots), make([]int, producers), 0
	for left := share * producers; left > 0; {
		n := h.take(dst)
		if n == 0 {
			runtime.Gosched()
			continue
		}
		for _, i := range dst[:n] {
			it := &items[i]
			if it.seq != next[it.from] {
				b.Fatalf("producer %d: %d, want %d", it.from, it.seq, next[it.from])
			}
			next[it.from]++
		}
		free.PutN(dst[:n])
		left -= n
		batches++
	}
	done.Wait()
	b.ReportMetric(float64(share*producers)/float64(batches), "batch")
}

// awayFor is how long, and awayEvery how often, a producer is preempted in the middle of a push: a
// time slice of the kernel. These waits are the load that is measured; they synchronize nothing.
const (
	awayFor   = 4 * time.Millisecond
	awayEvery = 8 * time.Millisecond
)

// BenchmarkContestAway measures how long three producers that push one index at a time wait until
// the consumer has it, while a fourth is preempted in the middle of a push.
func BenchmarkContestAway(b *testing.B) {
	for _, c := range contest {
		for _, away := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/away=%v", c.name, away), func(b *testing.B) { contestAway(b, c.make(4), away) })
		}
	}
}

func contestAway(b *testing.B, h handover, away bool) {
	const others, lasting = 3, time.Second
	free, items := NewFreeList(contestSlots), make([]contestItem, contestSlots)
	var stop, gone atomic.Bool
	var producers, consumer sync.WaitGroup
	consumer.Go(func() {
		dst := make([]uint32, contestSlots)
		for !gone.Load() {
			n := h.take(dst)
			for _, i := range dst[:n] {
				if it := &items[i]; it.back != nil {
					it.back.Store(int64(time.Since(it.at)))
				}
			}
			free.PutN(dst[:n])
			runtime.Gosched()
		}
	})
	var all [others][]int64
	for p := range others {
		producers.Go(func() {
			var back atomic.Int64
			for !stop.Load() {
				i, _ := free.Get() // there are more slots than producers
				back.Store(0)
				items[i].at, items[i].back = time.Now(), &back
				h.push(p, i)
				for back.Load() == 0 {
					runtime.Gosched()
				}
				all[p] = append(all[p], back.Load())
			}
		})
	}
	producers.Go(func() {
		for !stop.Load() {
			i, _ := free.Get()
			items[i].back = nil
			if away {
				h.half(others, i, func() { <-time.After(awayFor) })
			} else {
				h.push(others, i)
			}
			<-time.After(awayEvery - awayFor)
		}
	})
	<-time.After(lasting)
	stop.Store(true)
	producers.Wait()
	gone.Store(true)
	consumer.Wait()
	took := slices.Sorted(slices.Values(slices.Concat(all[:]...)))
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))]) / 1e3 }
	long := int64(0) // a waiting producer does not push: the long waits are few, however long they are
	for _, ns := range took {
		if ns > int64(awayFor)/4 {
			long += ns
		}
	}
	b.ReportMetric(at(0.99), "p99-µs")
	b.ReportMetric(at(0.999), "p99.9-µs")
	b.ReportMetric(at(1), "max-µs")
	b.ReportMetric(100*float64(long)/float64(others*lasting), "%-of-time-in-waits-above-1ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkContestLines measures the cost of false sharing: free list, stack and slots, with their
// words adjacent or linePad apart.
func BenchmarkContestLines(b *testing.B) {
	for _, producers := range []int{1, 4} {
		for _, apart := range []int{1, linePad / 8} {
			b.Run(fmt.Sprintf("%d/%dB", producers, apart*8), func(b *testing.B) { contestLines(b, producers, apart) })
		}
	}
}

// words holds the two heads and the slots' contents, apart words from each other.
type words struct {
	w       []atomic.Uint64
	content []uint64
	apart   int
	below   []atomic.Uint32 // links of the free list
	under   []uint32        // links of the submission stack
}

func (w *words) free() *atomic.Uint64  { return &w.w[0] }
func (w *words) stack() *atomic.Uint64 { return &w.w[w.apart] }

func (w *words) get() (uint32, bool) {
	for {
		h := w.free().Load()
		i := uint32(h)
		if i == none {
			return 0, false
		}
		if w.free().CompareAndSwap(h, (h&^none+tagOne)|uint64(w.below[i].Load())) {
			return i, true
		}
	}
}

func (w *words) put(i uint32) {
	for {
		h := w.free().Load()
		w.below[i].Store(uint32(h))
		if w.free().CompareAndSwap(h, (h&^none+tagOne)|uint64(i)) {
			return
		}
	}
}

func (w *words) push(i uint32) {
	for {
		h := w.stack().Load()
		w.under[i] = uint32(h)
		if w.stack().CompareAndSwap(h, uint64(i)) {
			return
		}
	}
}

func contestLines(b *testing.B, producers, apart int) {
	w := &words{
		w: make([]atomic.Uint64, 2*linePad/8), content: make([]uint64, contestSlots*apart), apart: apart,
		below: make([]atomic.Uint32, contestSlots), under: make([]uint32, contestSlots),
	}
	w.free().Store(none)
	w.stack().Store(none)
	for i := range uint32(contestSlots) {
		w.put(i)
	}
	share := b.N/producers + 1
	b.ResetTimer()
	var done sync.WaitGroup
	for p := range producers {
		done.Go(func() {
			for range share {
				i, ok := w.get()
				for !ok {
					runtime.Gosched()
					i, ok = w.get()
				}
				for k := range uint64(8) { // as a work request is filled
					w.content[int(i)*apart] = k + uint64(p)
				}
				w.push(i)
			}
		})
	}
	sum := uint64(0)
	for left := share * producers; left > 0; {
		i := uint32(w.stack().Load())
		if i == none {
			runtime.Gosched()
			continue
		}
		for i = uint32(w.stack().Swap(none)); i != none; left-- {
			under := w.under[i]
			sum += w.content[int(i)*apart]
			w.put(i)
			i = under
		}
	}
	done.Wait()
	runtime.KeepAlive(sum)
}

// stackHandover is the reactor's design.
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
	p.seq.Store(t + 1)
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

// chain is Vyukov's linked list, with its links in an array: a producer swaps itself in, and then
// links itself behind its predecessor. The last node taken stays as the stub.
type chain struct {
	tail atomic.Uint32
	_    pad
	head uint32 // the stub; owned by the consumer
	_    pad
	// node k's successor; written by the producer behind it, read by the consumer. A node is not
	// the slot, since the last one taken stays: nodes are recycled.
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

// lanes is one ring per producer; the consumer polls them in turn.
type lanes []lane

type lane struct {
	buf  []uint32
	tail atomic.Uint64 // written by the producer: publishes the places below it
	_    pad
	head uint64 // the consumer's; no producer reads it: there are no more indices than places
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

// chanHandover is a channel. Its lock is the Go runtime's, so half cannot stop inside it.
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

// lockedHandover is a slice under a mutex; the consumer takes the whole slice.
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
