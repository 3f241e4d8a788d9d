package mem

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: Find returns the smallest live arena that holds the range, however many there are, in
// whatever order they came and went: many more than a chunk of the registry holds, some of them
// overlapping all others.
func TestFindAmongMany(t *testing.T) {
	const size, many = 1 << 16, 5 * chunkMax
	outer := mustMap(t, size, Options{})
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		rnd := rand.New(rand.NewPCG(seed, 1))
		before, _ := Live()
		var all []*Arena
		add := func() {
			off, n := rnd.IntN(size-1), 1+rnd.IntN(200)
			if rnd.IntN(50) == 0 {
				n = size
			}
			b := outer.Bytes()[off:min(off+n, size)]
			a := &Arena{addr: outer.Addr() + uint64(off), total: len(b)} // Adopt without its check of the mappings
			a.size.Store(uint64(len(b)))
			register(a)
			all = append(all, a)
		}
		drop := func() {
			i := rnd.IntN(len(all))
			unregister(all[i])
			all = slices.Delete(all, i, i+1)
		}
		defer func() {
			for len(all) > 0 {
				drop()
			}
			if after, _ := Live(); after != before {
				t.Fatalf("%d arenas before, %d after", before, after)
			}
		}()
		for range many {
			add()
		}
		for range many {
			if rnd.IntN(2) == 0 || len(all) == 0 {
				add()
			} else {
				drop()
			}
			off, n := rnd.IntN(size), rnd.IntN(100)
			addr, best := outer.Addr()+uint64(off), -1
			for _, a := range append(all, outer) {
				if a.Addr() <= addr && addr+uint64(n) <= a.Addr()+uint64(a.total) && (best < 0 || a.total < best) {
					best = a.total
				}
			}
			got, ok := Find(addr, n)
			if ok != (best >= 0) || ok && got.total != best {
				t.Fatalf("Find(+%d, %d) = %v, %v, want one of %d bytes", off, n, got, ok, best)
			}
		}
		if n, _ := Live(); n != before+len(all) {
			t.Fatalf("%d arenas, want %d", n, before+len(all))
		}
	})
}

// Find returns the smallest live arena that holds the range, whatever was adopted and
// unregistered, in whatever order.
func TestFindAgainstModel(t *testing.T) {
	const size = 1 << 16
	outer := mustMap(t, size, Options{})
	rapid.Check(t, func(t *rapid.T) {
		model := map[*Arena]bool{outer: true}
		defer func() {
			for a := range model {
				if a != outer {
					if err := a.Unmap(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "adopt") {
				off := rapid.IntRange(0, size-1).Draw(t, "off")
				n := rapid.IntRange(1, min(size-off, 3000)).Draw(t, "n")
				a := must.Get(Adopt(outer.Bytes()[off : off+n]))(t)
				model[a] = true
			} else {
				for a := range model {
					if a != outer {
						if err := a.Unmap(); err != nil {
							t.Fatal(err)
						}
						delete(model, a)
						break
					}
				}
			}
			for range 5 {
				off := rapid.Uint64Range(0, size-1).Draw(t, "find")
				n := rapid.IntRange(0, int(size-off)).Draw(t, "len")
				addr := outer.Addr() + off
				best := size
				for a := range model {
					if a.Addr() <= addr && addr+uint64(n) <= a.Addr()+uint64(a.Len()) {
						best = min(best, a.Len())
					}
				}
				got, ok := Find(addr, n)
				if !ok || got.Len() != best || !model[got] {
					t.Fatalf("Find(+%d, %d) = %v of %d bytes, want one of %d bytes", off, n, ok, got.Len(), best)
				}
			}
		}
	})
}

func TestFindRefusesWhatNobodyHolds(t *testing.T) {
	a := mustMap(t, 4096, Options{})
	for _, c := range []struct {
		addr uint64
		n    int
	}{{a.Addr(), -1}, {a.Addr(), a.Len() + 1}, {a.Addr() - 1, 2}, {^uint64(0), 2}, {^uint64(0), 0}, {0, 0}, {a.Addr(), int(^uint(0) >> 1)}} {
		if f, ok := Find(c.addr, c.n); ok {
			t.Errorf("Find(%#x, %d) = arena %#x of %d bytes", c.addr, c.n, f.Addr(), f.Len())
		}
	}
}

// Readers never see a half-made table: while other arenas come and go, a permanent one is always
// found, and a pinned one is mapped.
func TestFindWhileArenasComeAndGo(t *testing.T) {
	stays := mustMap(t, 4096, Options{})
	var stop atomic.Bool
	var lately atomic.Uint64
	var writers, readers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for range 300 {
				a, err := Map(4096, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				lately.Store(a.Addr())
				for a.Unmap() != nil { // ErrPinned while a reader holds a pin
				}
			}
		})
		readers.Go(func() {
			for !stop.Load() {
				if a, ok := Find(stays.Addr()+10, 100); !ok || a != stays {
					t.Error("an arena that stays was not found")
					return
				}
				if a, ok := Find(lately.Load(), 8); ok && a.Pin() == nil {
					a.Bytes()[0]++ // a fault here would be a lost pin
					a.Unpin()
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
}

// Rule: memory of the library is registered in its own arena, so that it stays mapped; other memory is
// adopted for the registration. Memory that is only partly the library's is refused, and a refused
// registration leaves nothing. (The bug: the library's memory was adopted, too, and the device pinned
// only that.)
func TestAdoptForPinsTheLibrarysOwnMemory(t *testing.T) {
	m := mustMap(t, 1<<16, Options{})
	arenas, _ := Live()
	pinned := func(addr, n uint64) error {
		a, ok := Find(addr, int(n))
		if !ok || a != m {
			t.Errorf("%d bytes at %#x are in another arena", n, addr)
		}
		return nil
	}
	for _, b := range [][]byte{m.Bytes(), m.Bytes()[:1], m.Bytes()[100:300], m.Bytes()[1<<16-1:]} {
		if !OwnedIn(b) {
			t.Errorf("%d bytes are not the library's", len(b))
		}
		if a, err := AdoptFor(b, pinned); a != nil || err != nil {
			t.Errorf("%d bytes: arena %v, error %v; want neither", len(b), a, err)
		}
	}
	over := unsafe.Slice(unsafe.SliceData(m.Bytes()), 1<<16+1)
	if _, err := AdoptFor(over, pinned); !errors.Is(err, ErrPartlyOwned) {
		t.Errorf("memory that is only partly the library's: %v, want ErrPartlyOwned", err)
	}
	no := errors.New("refused")
	if a, err := AdoptFor(m.Bytes(), func(_, _ uint64) error { return no }); a != nil || !errors.Is(err, no) {
		t.Errorf("a refused registration: arena %v, error %v", a, err)
	}
	if _, err := AdoptFor(nil, pinned); !errors.Is(err, ErrSize) {
		t.Errorf("no memory: %v, want ErrSize", err)
	}
	if _, err := AdoptFor(make([]byte, 64), pinned); !errors.Is(err, ErrGoHeap) && math.MaxInt != math.MaxInt32 {
		t.Errorf("memory of the Go heap: %v, want ErrGoHeap", err)
	}
	if n, _ := Live(); n != arenas {
		t.Errorf("%d arenas, want %d", n, arenas)
	}
}
