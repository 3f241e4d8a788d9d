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

// The designs that docs/adr/0009 compares: slots from one FreeList, and their indices
// handed over by each of them. Anew:
//
//	go test -run '^$' -bench Contest ./internal/ring

// contestSlots is a send queue of the usual depth.
const contestSlots = 128

// handover is a design: push by producer p, after which the consumer gets the indices by
// take, which fills dst. half is push by a producer that is taken away in the middle, where
// that hurts most, and runs again when pause returns.
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

// contestItem is what a slot carries; a line of its own, as a work request has.
type contestItem struct {
	from, seq int
	at        time.Time
	back      *atomic.Int64 // of who waits for it: when the consumer had it
	_         [linePad - 56]byte
}

// BenchmarkContest is the time per index from taking its slot to its being with the
// consumer and the slot given back, and how many the consumer gets at a time. Order is
// checked.
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

// awayFor is for how long, and awayEvery how often, a producer is taken away in the
// middle of a push: a time slice of the kernel. These waits are the load that is measured;
// nothing is synchronised by them.
const (
	awayFor   = 4 * time.Millisecond
	awayEvery = 8 * time.Millisecond
)

// BenchmarkContestAway is how long three producers that push one at a time wait for the
// consumer to have it, while a fourth is taken away in the middle of a push.
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
				i, _ := free.Get() // there are more than producers
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
	long := int64(0) // who waits does not push: the long waits are few, whatever they take
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
