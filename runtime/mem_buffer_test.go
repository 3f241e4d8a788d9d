package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestClassHoldsTheSizeAndNoMoreThanTwice(t *testing.T) {
	for n := 0; n <= MaxPooled; n++ {
		size := 1 << (classOf(n) + minClassBits)
		if size < n || size > 64 && size >= 2*n {
			t.Fatalf("%d bytes are in the class of %d", n, size)
		}
	}
	if last := classOf(MaxPooled); last != numClasses-1 {
		t.Errorf("the largest class is %d, want %d", last, numClasses-1)
	}
}

func TestBufferIsRegisteredMemoryOfTheSizeAskedFor(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	for _, n := range []int{0, 1, 64, 65, 4096, 5000, MaxPooled, MaxPooled + 1, 3 << 20} {
		b := mustAlloc(t, m, n)
		s := b.Slice()
		if b.Len() != n || len(b.Bytes()) != n || cap(b.Bytes()) != n || s.Len() != n {
			t.Fatalf("Alloc(%d) has Len %d, %d bytes with capacity %d, slice of %d", n, b.Len(), len(b.Bytes()), cap(b.Bytes()), s.Len())
		}
		sge := s.SGE()
		var mr *fakeMR
		for r := range pd.live {
			if r.key == sge.LKey {
				mr = r
			}
		}
		if mr == nil {
			t.Fatalf("Alloc(%d): no registration has lkey %d", n, sge.LKey)
		}
		if mr.access != verbs.AccessLocalWrite {
			t.Errorf("buffers are registered with %v, want LOCAL_WRITE only", mr.access)
		}
		if int(sge.Length) != n || sge.Addr < mr.IOVA() || sge.Addr+uint64(n) > mr.IOVA()+mr.length {
			t.Errorf("element %+v is outside the registration of %d bytes at %#x", sge, mr.length, mr.IOVA())
		}
		if n > 0 {
			// The device uses the element. The element and Bytes must refer to the same memory.
			b.Bytes()[n-1] = 0xA7
			view, ok := mr.arena.Slice(sge.Addr-ioOffset, n)
			if !ok || view[n-1] != 0xA7 {
				t.Errorf("Alloc(%d): the element names other memory than Bytes", n)
			}
		}
		mustRelease(t, b)
	}
	if _, err := m.Alloc(-5); !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "-5 bytes") {
		t.Errorf("Alloc(-5): %v, want ErrRange with the size", err)
	}
}

func TestStaleHandlesNeverTouchTheNextOwner(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	for _, n := range []int{100, MaxPooled + 1} {
		old := mustAlloc(t, m, n)
		oldSlice := old.Slice()
		mustRelease(t, old)
		next := mustAlloc(t, m, n)
		if n <= MaxPooled && next.s.addr != old.s.addr {
			t.Fatal("the test wants the same block again")
		}
		if err := old.Release(); !errors.Is(err, ErrReleased) {
			t.Errorf("second Release: %v, want ErrReleased", err)
		}
		if err := oldSlice.begin(); !errors.Is(err, ErrReleased) {
			t.Errorf("an operation on a stale slice: %v, want ErrReleased", err)
		}
		if oldSlice.lease.beginN(oldSlice.gen, 2) {
			t.Error("two operations on a stale slice have begun")
		}
		if !next.s.lease.beginN(next.s.gen, 2) {
			t.Error("two operations on the new owner's slice were refused")
		} else {
			if n, ok := next.s.lease.retire(next.s.gen); n != 2 || ok {
				t.Errorf("retiring with two operations in flight: %d, %t, want 2, false", n, ok)
			}
			next.s.lease.EndN(2)
		}
		if old.Bytes() != nil || oldSlice.Bytes() != nil {
			t.Error("a stale handle still shows bytes")
		}
		if next.Bytes() == nil {
			t.Error("a stale Release took the block from its new owner")
		}
		mustRelease(t, next)
	}
	if err := (Buffer{}).Release(); !errors.Is(err, ErrReleased) {
		t.Errorf("Release of the zero Buffer: %v, want ErrReleased", err)
	}
}

func TestReleasedMemoryStaysTheDevicesUntilTheLastCompletion(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	for _, n := range []int{1 << 20, 3 << 20} {
		b := mustAlloc(t, m, n)
		s := b.Slice()
		for range 2 {
			if err := s.begin(); err != nil {
				t.Fatal(err)
			}
		}
		mustRelease(t, b)
		if err := s.begin(); !errors.Is(err, ErrReleased) {
			t.Errorf("an operation after Release: %v, want ErrReleased", err)
		}
		if err := b.Release(); !errors.Is(err, ErrReleased) {
			t.Errorf("Release while the device has it: %v, want ErrReleased", err)
		}
		for left := 2; left > 0; left-- {
			other := mustAlloc(t, m, n)
			if other.s.addr == s.addr {
				t.Fatalf("%d bytes went to a new owner with %d operations in flight", n, left)
			}
			if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
				t.Fatalf("Close with operations in flight: %v, want ErrBusy", err)
			}
			m.closing.Store(false) // reopen the memory for the rest of the test
			mustRelease(t, other)
			s.lease.End()
		}
		if got := m.Stats().InUse; got != 0 {
			t.Errorf("%d bytes in use after the last completion", got)
		}
	}
}

func TestLostCountOfALeasePanics(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	b := mustAlloc(t, m, 1)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("End without begin must panic")
			}
		}()
		b.s.lease.End()
	}()
	b.s.lease.word.Add(1) // undo the End above
	mustRelease(t, b)
	(*lease)(nil).End() // the lease of the empty slice is nil, and its End has no effect
}

// Rule: returning a block that lies outside its slab panics, because the memory has another owner.
func TestBlockOutsideItsSlabPanics(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	b := mustAlloc(t, m, 1)
	defer mustRelease(t, b)
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "outside its slab") {
			t.Errorf("panic %q, want one that says so", s)
		}
	}()
	s := b.s.lease.home.(*slab)
	s.block(uint32(len(s.leases)))
}

func TestPoisonFindsAWriteAfterTheLease(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{PoisonFreed: true})
	caught := func(what string, f func()) {
		t.Helper()
		defer func() {
			s, _ := recover().(string)
			if !strings.Contains(s, "byte 37 ") || !strings.Contains(s, "0x42") {
				t.Errorf("%s: panic %q, want one with offset and value", what, s)
			}
		}()
		f()
	}
	for _, n := range []int{64, 1000} {
		b := mustAlloc(t, m, n)
		kept := b.Bytes()
		mustRelease(t, b)
		kept[37] = 0x42
		caught("Alloc", func() { _, _ = m.Alloc(n) })
		// The panic has kept the block off the free list: put the block back.
		b.s.lease.home.giveBack(b.s.lease.index)
		kept[37] = 0x42
		m.mu.Lock()
		caught("reclaim", func() { _, _, _ = m.reclaim() })
		m.mu.Unlock()
		for i := range n / 64 * 64 { // reclaim has taken all blocks: restore the poison, then put the blocks back
			kept[:cap(kept)][min(i, cap(kept)-1)] = 0xDB
		}
		s := b.s.lease.home.(*slab)
		for i := range s.leases {
			s.giveBack(uint32(i))
		}
	}
	// A released block is poisoned after its last operation has ended, not before.
	b := mustAlloc(t, m, 100)
	s := b.Slice()
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	kept := b.Bytes()
	kept[0] = 1
	mustRelease(t, b)
	if kept[0] != 1 {
		t.Error("memory that the device has was poisoned")
	}
	kept[0] = 2 // the device may still write
	s.lease.End()
	if kept[0] != 0xDB {
		t.Error("memory given back was not poisoned")
	}
}

func TestLimitIsNamedAndUnusedSlabsServeOtherClasses(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{MaxBytes: 2*slabSize + 100})
	a, b := mustAlloc(t, m, 64), mustAlloc(t, m, 128)
	_, err := m.Alloc(256)
	e, ok := errors.AsType[*NoMemoryError](err)
	if !ok || !errors.Is(err, ErrNoMemory) || e.Limit != 2*slabSize+100 || e.Mapped != 2*slabSize || e.Wanted != slabSize {
		t.Fatalf("third class: %v, want NoMemoryError with limit, mapped and wanted", err)
	}
	if !strings.Contains(err.Error(), "MaxBytes is 4194404") {
		t.Errorf("%q does not name the limit", err)
	}
	if _, err := m.NewRegion(4096, 0); !errors.Is(err, ErrNoMemory) {
		t.Errorf("a region above the limit: %v", err)
	}
	if _, err := m.Alloc(2 << 20); !errors.Is(err, ErrNoMemory) {
		t.Errorf("a big buffer above the limit: %v", err)
	}
	mustRelease(t, a)
	c := mustAlloc(t, m, 256) // reclaims the slab of 64-byte blocks, which is unused
	if got := m.Stats(); got.Slabs != 2 || got.Mapped != 2*slabSize || pd.count() != 2 {
		t.Errorf("after reuse: %+v and %d registrations, want two slabs", got, pd.count())
	}
	if b.Bytes() == nil {
		t.Error("a slab in use was reclaimed")
	}
	mustRelease(t, b)
	big := mustAlloc(t, m, 2<<20)
	mustRelease(t, big)
	mustRelease(t, c)
}

// Rule: unused slabs are kept as long as the limit permits, also if no byte is left.
func TestUnusedSlabsAreKeptWithinTheLimit(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{MaxBytes: 2 * slabSize})
	mustRelease(t, mustAlloc(t, m, 64))
	defer mustRelease(t, mustAlloc(t, m, 128))
	if n := m.Stats().Slabs; n != 2 {
		t.Errorf("%d slabs, want 2: the unused one, and one that takes the rest of the limit", n)
	}
}

func TestSlabsComeOnlyWhenAllBlocksAreOut(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	var bs []Buffer
	seen := map[uint64]bool{}
	for i := range 3 * slabSize / 65536 {
		b := mustAlloc(t, m, 65536)
		if seen[b.s.addr] {
			t.Fatal("a block was given twice")
		}
		seen[b.s.addr] = true
		bs = append(bs, b)
		if got, want := m.Stats().Slabs, i*65536/slabSize+1; got != want {
			t.Fatalf("%d slabs for %d blocks, want %d", got, i+1, want)
		}
	}
	if s := m.Stats(); s.InUse != 3*slabSize || s.Buffers != len(bs) {
		t.Errorf("stats are %+v, want all of three slabs in use", s)
	}
	for _, b := range bs {
		mustRelease(t, b)
	}
	for range bs {
		bs = append(bs[1:], mustAlloc(t, m, 65536))
	}
	if got := m.Stats().Slabs; got != 3 {
		t.Errorf("%d slabs after reuse, want 3", got)
	}
	for _, b := range bs {
		mustRelease(t, b)
	}
}

func TestBuffersAllocateNothing(t *testing.T) {
	for _, cfg := range []MemoryConfig{{}, {PoisonFreed: true}} {
		m, _ := testMemory(t, cfg)
		mustRelease(t, mustAlloc(t, m, 4096))
		if n := testing.AllocsPerRun(1000, func() {
			b := must.Get(m.Alloc(4096))(t)
			s, _ := b.Slice().Sub(16, 100)
			if s.begin() != nil || b.Release() != nil || s.SGE().Length != 100 {
				t.Fatal("not leased")
			}
			s.lease.End()
		}); n != 0 {
			t.Errorf("%+v: %v allocations per lease, want 0", cfg, n)
		}
	}
}

func TestSubIsBounded(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	b := mustAlloc(t, m, 100)
	s := b.Slice()
	for _, c := range []struct {
		off, n int
		ok     bool
	}{
		{0, 0, true}, {0, 100, true}, {100, 0, true}, {99, 1, true}, {10, 20, true},
		{0, 101, false}, {100, 1, false}, {101, 0, false}, {-1, 1, false}, {1, -1, false},
		{math.MaxInt, 1, false}, {1, math.MaxInt, false}, {math.MaxInt, math.MaxInt, false}, {math.MinInt, math.MinInt, false},
	} {
		sub, err := s.Sub(c.off, c.n)
		if !c.ok {
			e, is := errors.AsType[*RangeError](err)
			if !is || !errors.Is(err, ErrRange) || int(e.Off) != c.off || int(e.N) != c.n || e.Size != 100 {
				t.Errorf("Sub(%d, %d): %v, want RangeError with the values", c.off, c.n, err)
			}
			continue
		}
		if err != nil || sub.Len() != c.n || sub.SGE().Addr != s.SGE().Addr+uint64(c.off) || cap(sub.b) != c.n {
			t.Errorf("Sub(%d, %d) is %d bytes at %+d, error %v", c.off, c.n, sub.Len(), sub.SGE().Addr-s.SGE().Addr, err)
		}
	}
	mustRelease(t, b)
	one := Slice{addr: 100, deviceLen: 1} // memory of another device
	if sub, err := one.Sub(0, 1); err != nil || sub.Len() != 1 || sub.SGE().Addr != 100 {
		t.Errorf("Sub(0, 1) of a byte of another device is %d bytes at %d, error %v", sub.Len(), sub.SGE().Addr, err)
	}
	var zero Slice
	if zero.begin() != nil || zero.SGE() != (verbs.SGE{}) || zero.Bytes() != nil || !zero.writable() {
		t.Error("the zero Slice must serve operations of zero bytes")
	}
}

func TestCloseRefusesWhileBuffersAreOutAndThenGoesOn(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	small, big := mustAlloc(t, m, 10), mustAlloc(t, m, 2<<20)
	mustRelease(t, mustAlloc(t, m, 5000)) // an unused slab
	for range 2 {
		if err := m.Close(); !errors.Is(err, verbs.ErrBusy) || !strings.Contains(err.Error(), "2 buffers") {
			t.Fatalf("Close with two buffers out: %v, want ErrBusy with the number", err)
		}
	}
	if pd.count() != 2 {
		t.Errorf("%d registrations, want only those of the two buffers", pd.count())
	}
	if small.Bytes() == nil || big.Bytes() == nil {
		t.Fatal("Close took memory from its owner")
	}
	for _, n := range []int{10, 5000, 2 << 20} {
		if _, err := m.Alloc(n); !errors.Is(err, ErrClosed) {
			t.Errorf("Alloc(%d) of a closing memory: %v, want ErrClosed", n, err)
		}
	}
	if _, err := m.NewRegion(1, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("NewRegion of a closing memory: %v, want ErrClosed", err)
	}
	mustRelease(t, small)
	mustRelease(t, big)
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []MemoryConfig{{MaxBytes: -1}, {MaxBytes: slabSize - 1}, {Node: -1}} {
		if _, err := newMemory(newFakePD(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v, want ErrConfig", c, err)
		}
	}
	for _, c := range []MemoryConfig{{HugePages: true}, {Node: 1}, {CacheEntries: -1}, {MaxBytes: slabSize}} {
		m, _ := testMemory(t, c)
		mustRelease(t, mustAlloc(t, m, 1))
	}
}

func BenchmarkAllocRelease(b *testing.B) {
	m, _ := testMemory(b, MemoryConfig{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			buf, err := m.Alloc(4096)
			if err != nil || buf.Release() != nil {
				b.Error(err)
			}
		}
	})
}
