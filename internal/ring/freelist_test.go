package ring

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Get returns the index that was put last, and never an index in use.
func TestFreeListAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		f := NewFreeList(NewLinks(n))
		var free, out []uint32 // free: last is given first
		for i := range n {
			free = append(free, uint32(n-1-i))
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				i, ok := f.Get()
				if ok != (len(free) > 0) || (ok && i != free[len(free)-1]) {
					t.Fatalf("Get is %d, %v with %v free", i, ok, free)
				}
				if ok {
					free, out = free[:len(free)-1], append(out, i)
				}
			case 1:
				if len(out) > 0 {
					k := rapid.IntRange(0, len(out)-1).Draw(t, "which")
					f.Put(out[k])
					free, out = append(free, out[k]), slices.Delete(out, k, k+1)
				}
			case 2:
				k := rapid.IntRange(0, len(out)).Draw(t, "many")
				f.PutN(out[:k])
				for j := k - 1; j >= 0; j-- {
					free = append(free, out[j])
				}
				out = slices.Clone(out[k:])
			case 3:
				is := make([]uint32, rapid.IntRange(0, n+1).Draw(t, "at most"))
				got := f.GetN(is)
				if got != min(len(is), len(free)) {
					t.Fatalf("GetN of %d is %d with %v free", len(is), got, free)
				}
				for _, i := range is[:got] {
					if last := len(free) - 1; i != free[last] {
						t.Fatalf("GetN gave %v with %v free before", is[:got], free)
					} else {
						free, out = free[:last], append(out, i)
					}
				}
			}
			if f.Len() != len(free) || f.Cap() != n {
				t.Fatalf("Len %d, Cap %d, want %d, %d", f.Len(), f.Cap(), len(free), n)
			}
		}
	})
}

// A swap must fail if the head left and came back. This replays the classic history: one goroutine
// stops between its load and its swap.
func TestFreeListSurvivesABA(t *testing.T) {
	f := NewFreeList(NewLinks(3))
	stale := f.head.Load() // a Get stopped here: saw 0 on top and 1 below
	a, _ := f.Get()
	b, _ := f.Get()
	f.Put(a) // 0 is on top again, but 1 is in use
	if f.head.Load()&none != stale&none {
		t.Fatal("the history does not bring the same index to the top")
	}
	if f.head.CompareAndSwap(stale, stale&^none+tagOne|uint64(b)) {
		t.Error("a stale swap went through: index 1 is free and in use")
	}
}

// Each index has one owner at a time.
func TestFreeListConcurrently(t *testing.T) {
	const n, workers, each = 3, 4, 20000
	f := NewFreeList(NewLinks(n))
	owner := make([]int, n) // plain: a second owner is a data race
	var wg sync.WaitGroup
	for w := range workers {
		take := f.Get
		if w == 0 {
			take = func() (uint32, bool) {
				var is [2]uint32
				n := f.GetN(is[:])
				if n > 1 {
					f.Put(is[1])
				}
				return is[0], n > 0
			}
		}
		wg.Go(func() {
			for k := 0; k < each; k++ {
				i, ok := take()
				if !ok {
					runtime.Gosched()
					continue
				}
				if owner[i] != 0 {
					t.Errorf("index %d has two owners", i)
				}
				owner[i] = w + 1
				if k%64 == 0 {
					runtime.Gosched()
				}
				owner[i] = 0
				f.Put(i)
			}
		})
	}
	wg.Wait()
	if f.Len() != n {
		t.Errorf("%d of %d are free", f.Len(), n)
	}
}

// Len counts the free indices by walking the list, so its cost grows with their number. It is exact
// without concurrent Get and Put, and an estimate otherwise. For statistics and tests.
func (f *FreeList) Len() int {
	n := 0
	for i := uint32(f.head.Load() & none); i != none && n < len(f.next); i = f.next[i].load() {
		n++
	}
	return n
}
