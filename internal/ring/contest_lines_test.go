package ring

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkContestLines is what false sharing costs: free list, stack and slots, as
// they are but for the distance between their words, beside each other or linePad apart.
func BenchmarkContestLines(b *testing.B) {
	for _, producers := range []int{1, 4} {
		for _, apart := range []int{1, linePad / 8} {
			b.Run(fmt.Sprintf("%d/%dB", producers, apart*8), func(b *testing.B) { contestLines(b, producers, apart) })
		}
	}
}

// words are the two heads and the slots' contents, apart words from each other.
type words struct {
	w       []atomic.Uint64
	content []uint64
	apart   int
	below   []atomic.Uint32 // of the free
	under   []uint32        // of the submitted
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
