package mem

import (
	"errors"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/must"
)

func mustMap(t testing.TB, size int, o Options) *Arena {
	t.Helper()
	a, err := Map(size, o)
	if err != nil {
		t.Fatalf("Map(%d, %+v): %v", size, o, err)
	}
	t.Cleanup(func() {
		if err := a.Unmap(); err != nil {
			t.Errorf("Unmap: %v", err)
		}
	})
	return a
}

func TestMapIsZeroedWholePagesAndLeavesNothing(t *testing.T) {
	arenas, bytes := Live()
	for _, o := range []Options{{}, {Populate: true}, {Huge: true}, {Huge: true, Populate: true}, {Node: 1, Populate: true}} {
		a, err := Map(5000, o)
		if err != nil {
			t.Fatalf("Map %+v: %v", o, err)
		}
		if a.Len() < 5000 || a.Len()%os.Getpagesize() != 0 || a.Addr()%uint64(os.Getpagesize()) != 0 {
			t.Errorf("%+v: %d bytes at %#x, want whole aligned pages", o, a.Len(), a.Addr())
		}
		b := a.Bytes()
		for i, c := range b {
			if c != 0 {
				t.Fatalf("%+v: byte %d is %#x, want 0", o, i, c)
			}
		}
		b[0], b[len(b)-1] = 1, 2
		if n, size := Live(); n != arenas+1 || size != bytes+int64(a.Len()) {
			t.Errorf("%+v: Live is %d, %d, want one arena of %d bytes more than %d, %d", o, n, size, a.Len(), arenas, bytes)
		}
		for range 2 {
			if err := a.Unmap(); err != nil {
				t.Fatalf("%+v: Unmap must be idempotent: %v", o, err)
			}
		}
		if a.Bytes() != nil || a.Len() != 0 {
			t.Errorf("%+v: an unmapped arena still shows bytes", o)
		}
	}
	if n, size := Live(); n != arenas || size != bytes {
		t.Errorf("Live is %d, %d after all, want %d, %d", n, size, arenas, bytes)
	}
}

func TestMapRefuses(t *testing.T) {
	for _, c := range []struct {
		size int
		o    Options
		want error
	}{
		{0, Options{}, ErrSize}, {-1, Options{}, ErrSize}, {math.MaxInt, Options{}, ErrSize},
		{math.MaxInt, Options{Huge: true}, ErrSize}, {1, Options{Node: -1}, ErrNode},
	} {
		if a, err := Map(c.size, c.o); !errors.Is(err, c.want) {
			t.Errorf("Map(%d, %+v) = %v, %v; want %v", c.size, c.o, a, err, c.want)
		}
	}
	// Far more than any address space has, or, on 32 bits, all of it together: the system
	// refuses, and no arena stays.
	before, _ := Live()
	mapped := 0
	for ; mapped < 4; mapped++ {
		a, err := Map(math.MaxInt>>1, Options{})
		if err != nil {
			break
		}
		defer a.Unmap() // the address space is needed only until it is full
	}
	if mapped == 4 {
		t.Error("an impossible size was mapped")
	}
	if after, _ := Live(); after != before+mapped {
		t.Errorf("a failed Map left %d arenas", after-before-mapped)
	}
}

func TestPinsHoldUnmapOff(t *testing.T) {
	a := must.Get(Map(1, Options{}))(t)
	for range 2 {
		if err := a.Pin(); err != nil {
			t.Fatal(err)
		}
	}
	for left := 2; left > 0; left-- {
		if err := a.Unmap(); !errors.Is(err, ErrPinned) {
			t.Fatalf("Unmap with %d pins = %v, want ErrPinned", left, err)
		}
		if _, ok := Find(a.Addr(), 1); !ok || len(a.Bytes()) == 0 || a.Pins() != left {
			t.Fatal("a refused Unmap changed the arena")
		}
		a.Unpin()
	}
	if err := a.Unmap(); err != nil {
		t.Fatal(err)
	}
	if err := a.Pin(); !errors.Is(err, ErrUnmapped) {
		t.Fatalf("Pin after Unmap = %v, want ErrUnmapped", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Unpin without a pin must panic")
		}
	}()
	a.Unpin()
}

// Of a pin and an unmap that race, exactly one wins.
func TestPinAgainstUnmap(t *testing.T) {
	for range 500 {
		a := must.Get(Map(1, Options{}))(t)
		var pinned, unmapped atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() { pinned.Store(a.Pin() == nil) })
		wg.Go(func() { unmapped.Store(a.Unmap() == nil) })
		wg.Wait()
		if pinned.Load() == unmapped.Load() {
			t.Fatalf("pinned %v and unmapped %v", pinned.Load(), unmapped.Load())
		}
		if pinned.Load() {
			a.Bytes()[0] = 1
			a.Unpin()
		}
		if err := a.Unmap(); err != nil {
			t.Fatal(err)
		}
	}
}

// An access is in bounds exactly if all its bytes are, computed with sufficiently large numbers;
// and the view is the memory itself.
func TestViewsAgainstModel(t *testing.T) {
	a := mustMap(t, 3*4096, Options{})
	type pair struct{ A, B uint32 }
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.OneOf(
			rapid.Uint64Range(a.Addr()-40, a.Addr()+40),
			rapid.Uint64Range(a.Addr()+uint64(a.Len())-40, a.Addr()+uint64(a.Len())+40),
			rapid.Uint64(), rapid.Just(uint64(math.MaxUint64)),
		).Draw(t, "addr")
		n := rapid.OneOf(rapid.IntRange(-1, 50), rapid.Int(), rapid.Just(math.MaxInt)).Draw(t, "n")
		inside := func(size, count uint64) bool {
			if addr < a.Addr() || addr-a.Addr() > uint64(a.Len()) {
				return false
			}
			room := uint64(a.Len()) - (addr - a.Addr())
			return size == 0 || count <= room/size
		}
		check := func(what string, ok, want bool, p unsafe.Pointer) {
			if ok != want {
				t.Fatalf("%s at base%+d, n=%d: ok=%v, want %v", what, int64(addr-a.Addr()), n, ok, want)
			}
			if ok && p != nil && uint64(uintptr(p)) != addr {
				t.Fatalf("%s gives %p, want %#x", what, p, addr)
			}
		}
		s, ok := a.Slice(addr, n)
		if check("Slice", ok, n >= 0 && inside(1, uint64(n)), nil); ok && (len(s) != n || cap(s) != n) {
			t.Fatalf("Slice has len %d, cap %d, want %d", len(s), cap(s), n)
		}
		if ok && n > 0 {
			check("Slice", ok, true, unsafe.Pointer(&s[0]))
		}
		w, ok := a.Word(addr)
		check("Word", ok, addr%8 == 0 && inside(8, 1), unsafe.Pointer(w))
		p, ok := At[pair](a, addr)
		check("At", ok, addr%4 == 0 && inside(8, 1), unsafe.Pointer(p))
		v, ok := Array[pair](a, addr, n)
		if check("Array", ok, n >= 0 && addr%4 == 0 && inside(8, uint64(n)), nil); ok && len(v) != n {
			t.Fatalf("Array has len %d, want %d", len(v), n)
		}
	})
}

func TestViewsOfAnUnmappedArenaFail(t *testing.T) {
	a := must.Get(Map(4096, Options{}))(t)
	if err := a.Unmap(); err != nil {
		t.Fatal(err)
	}
	_, slice := a.Slice(a.Addr(), 0)
	_, word := a.Word(a.Addr())
	_, at := At[byte](a, a.Addr())
	_, array := Array[byte](a, a.Addr(), 0)
	_, found := Find(a.Addr(), 0)
	if slice || word || at || array || found {
		t.Errorf("views of an unmapped arena: %v %v %v %v, found %v", slice, word, at, array, found)
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	a := mustMap(t, 4096, Options{})
	b := NewBump(a)
	if n := testing.AllocsPerRun(1000, func() {
		b.Reset()
		addr, _ := b.Alloc(64, 64)
		f, _ := Find(addr, 64)
		s, _ := f.Slice(addr, 64)
		Poison(s)
		if Poisoned(s) != -1 || f.Pin() != nil {
			t.Fatal("not poisoned or not pinned")
		}
		f.Unpin()
		w, _ := f.Word(addr)
		*w++
		v, _ := Array[uint32](f, addr, 4)
		p, _ := At[uint32](f, addr)
		*p += v[1]
	}); n != 0 {
		t.Errorf("%v allocations per view, want 0", n)
	}
}

func BenchmarkAt(b *testing.B) {
	a := mustMap(b, 1<<16, Options{})
	var sum uint64
	for i := 0; b.Loop(); i++ {
		p, ok := At[[8]uint64](a, a.addr+uint64(i&1023)*64)
		if !ok {
			b.Fatal("out of bounds")
		}
		sum += p[3]
	}
	_ = sum
}

func BenchmarkFind(b *testing.B) {
	for range 64 {
		mustMap(b, 1<<16, Options{})
	}
	a := mustMap(b, 1<<16, Options{})
	for b.Loop() {
		if f, ok := Find(a.addr+100, 100); !ok || f != a {
			b.Fatal("not found")
		}
	}
}

// Rule: an arena that the system does not unmap lives on, and a later Unmap unmaps it. (The bug: the second
// Unmap returned nil, and the memory stayed.)
func TestUnmapThatTheSystemRefusesIsRepeated(t *testing.T) {
	a := must.Get(Map(4096, Options{}))(t)
	refused := errors.New("refused")
	unmap = func(unsafe.Pointer, int) error { return refused }
	err := a.Unmap()
	unmap = osUnmap
	if found, ok := Find(a.Addr(), 8); !errors.Is(err, refused) || !ok || found != a || a.Len() != 4096 {
		t.Fatalf("after Unmap (%v) the arena has %d bytes and is found: %t; want the system's error, 4096, true", err, a.Len(), ok)
	}
	must.Do(t, a.Pin()) // it is as before
	a.Unpin()
	a.Bytes()[0] = 1
	must.Do(t, a.Unmap())
	must.Do(t, a.Unmap())
	if _, ok := Find(a.Addr(), 8); ok || a.Len() != 0 {
		t.Errorf("after the second Unmap the arena has %d bytes and is found: %t; want 0, false", a.Len(), ok)
	}
}
