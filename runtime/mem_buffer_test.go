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
			t.Fatalf("a buffer of %d bytes gets a block of %d bytes, want a block at least as large as the buffer, and either of 64 bytes or less than twice as large as the buffer", n, size)
		}
	}
	if last := classOf(MaxPooled); last != numClasses-1 {
		t.Errorf("MaxPooled is in size class %d, want the last class, %d", last, numClasses-1)
	}
}

func TestBufferIsRegisteredMemoryOfTheSizeAskedFor(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	for _, n := range []int{0, 1, 64, 65, 4096, 5000, MaxPooled, MaxPooled + 1, 3 << 20} {
		b := mustAlloc(t, m, n)
		s := b.Slice()
		if b.Len() != n || len(b.Bytes()) != n || cap(b.Bytes()) != n || s.Len() != n {
			t.Fatalf("Alloc(%d) has Len %d, Bytes of length %d and capacity %d, and a Slice of length %d; want %d everywhere",
				n, b.Len(), len(b.Bytes()), cap(b.Bytes()), s.Len(), n)
		}
		sge := s.SGE()
		var mr *fakeMR
		for r := range pd.live {
			if r.key == sge.LKey {
				mr = r
			}
		}
		if mr == nil {
			t.Fatalf("Alloc(%d): no registration has the lkey of the buffer, %d", n, sge.LKey)
		}
		if mr.access != verbs.AccessLocalWrite {
			t.Errorf("the buffer is registered with access %v, want LOCAL_WRITE only", mr.access)
		}
		if int(sge.Length) != n || sge.Addr < mr.IOVA() || sge.Addr+uint64(n) > mr.IOVA()+mr.length {
			t.Errorf("the scatter-gather element %+v does not have %d bytes inside the registration of %d bytes at %#x", sge, n, mr.length, mr.IOVA())
		}
		if n > 0 {
			// The device uses the scatter-gather element. The element and Bytes must refer to the same
			// memory.
			b.Bytes()[n-1] = 0xA7
			view, ok := mr.arena.Slice(sge.Addr-ioOffset, n)
			if !ok || view[n-1] != 0xA7 {
				t.Errorf("Alloc(%d): the scatter-gather element and Bytes refer to different memory", n)
			}
		}
		mustRelease(t, b)
	}
	if _, err := m.Alloc(-5); !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "-5 bytes") {
		t.Errorf("Alloc(-5): %v, want ErrRange with the text \"-5 bytes\"", err)
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
			t.Fatal("the second Alloc did not return the released block, but the test needs the same block")
		}
		if err := old.Release(); !errors.Is(err, ErrReleased) {
			t.Errorf("the second Release of a buffer: %v, want ErrReleased", err)
		}
		if err := oldSlice.begin(); !errors.Is(err, ErrReleased) {
			t.Errorf("beginning an operation on a slice of a released buffer: %v, want ErrReleased", err)
		}
		if oldSlice.lease.beginN(oldSlice.gen, 2) {
			t.Error("two operations on a slice of a released buffer have begun, want a refusal")
		}
		if !next.s.lease.beginN(next.s.gen, 2) {
			t.Error("two operations on a slice of the new owner's buffer were refused, want them to begin")
		} else {
			if n, ok := next.s.lease.retire(next.s.gen); n != 2 || ok {
				t.Errorf("retire with two operations in flight returned %d, %t, want 2, false", n, ok)
			}
			next.s.lease.EndN(2)
		}
		if old.Bytes() != nil || oldSlice.Bytes() != nil {
			t.Error("Bytes of a released buffer, or of its slice, is not nil")
		}
		if next.Bytes() == nil {
			t.Error("the second Release of the old buffer has released the new owner's buffer")
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
			t.Errorf("beginning an operation after Release: %v, want ErrReleased", err)
		}
		if err := b.Release(); !errors.Is(err, ErrReleased) {
			t.Errorf("the second Release, with two operations in flight: %v, want ErrReleased", err)
		}
		for left := 2; left > 0; left-- {
			other := mustAlloc(t, m, n)
			if other.s.addr == s.addr {
				t.Fatalf("Alloc returned a released buffer of %d bytes with %d operations in flight on it", n, left)
			}
			if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
				t.Fatalf("Close with %d operations in flight: %v, want ErrBusy", left, err)
			}
			m.closing.Store(false) // so that the rest of the test can use the memory
			mustRelease(t, other)
			s.lease.End()
		}
		if got := m.Stats().InUse; got != 0 {
			t.Errorf("%d bytes are in use after the last operation has ended, want 0", got)
		}
	}
}

func TestLostCountOfALeasePanics(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	b := mustAlloc(t, m, 1)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("End without begin did not panic")
			}
		}()
		b.s.lease.End()
	}()
	b.s.lease.word.Add(1) // undo the call of End
	mustRelease(t, b)
	(*lease)(nil).End() // the lease of the empty slice is nil, and its End has no effect
}

// Rule: if a block is outside its slab, slab.block panics, because the memory there may have another
// owner.
func TestBlockOutsideItsSlabPanics(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	b := mustAlloc(t, m, 1)
	defer mustRelease(t, b)
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "outside its slab") {
			t.Errorf("slab.block panicked with %q, want a panic with the text \"outside its slab\"", s)
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
				t.Errorf("%s panicked with %q, want a panic that names byte 37 and the value 0x42", what, s)
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
		// The panic came after Alloc had taken the block off the free list: put the block back.
		b.s.lease.home.giveBack(b.s.lease.index)
		kept[37] = 0x42
		m.mu.Lock()
		caught("reclaim", func() { _, _, _ = m.reclaim() })
		m.mu.Unlock()
		// The panic came after reclaim had taken all blocks off the free list. Restore the poison (0xDB),
		// and then put the blocks back.
		for i := range n / 64 * 64 {
			kept[:cap(kept)][min(i, cap(kept)-1)] = 0xDB
		}
		s := b.s.lease.home.(*slab)
		for i := range s.leases {
			s.giveBack(uint32(i))
		}
	}
	// If operations are in flight, a released block is poisoned when its last operation ends, not before.
	b := mustAlloc(t, m, 100)
	s := b.Slice()
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	kept := b.Bytes()
	kept[0] = 1
	mustRelease(t, b)
	if kept[0] != 1 {
		t.Error("Release poisoned a block with an operation in flight")
	}
	kept[0] = 2 // as if the device wrote for the operation
	s.lease.End()
	if kept[0] != 0xDB {
		t.Error("the block was not poisoned when its last operation ended")
	}
}

func TestLimitIsNamedAndUnusedSlabsServeOtherClasses(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{MaxBytes: 2*slabSize + 100})
	a, b := mustAlloc(t, m, 64), mustAlloc(t, m, 128)
	_, err := m.Alloc(256)
	e, ok := errors.AsType[*NoMemoryError](err)
	if !ok || !errors.Is(err, ErrNoMemory) || e.Limit != 2*slabSize+100 || e.Mapped != 2*slabSize || e.Wanted != slabSize {
		t.Fatalf("Alloc of a third size class: %v; want a NoMemoryError with the limit %d, %d mapped bytes and %d wanted bytes", err, 2*slabSize+100, 2*slabSize, slabSize)
	}
	if !strings.Contains(err.Error(), "MaxBytes is 4194404") {
		t.Errorf("the error %q does not contain \"MaxBytes is 4194404\"", err)
	}
	if _, err := m.NewRegion(4096, 0); !errors.Is(err, ErrNoMemory) {
		t.Errorf("NewRegion above the limit: %v, want ErrNoMemory", err)
	}
	if _, err := m.Alloc(2 << 20); !errors.Is(err, ErrNoMemory) {
		t.Errorf("Alloc of a large buffer above the limit: %v, want ErrNoMemory", err)
	}
	mustRelease(t, a)
	c := mustAlloc(t, m, 256) // unmaps the slab of 64-byte blocks, which is unused, and maps a new slab
	if got := m.Stats(); got.Slabs != 2 || got.Mapped != 2*slabSize || pd.count() != 2 {
		t.Errorf("after an unused slab was replaced: %+v and %d registrations; want two slabs, the bytes of two slabs mapped, and two registrations", got, pd.count())
	}
	if b.Bytes() == nil {
		t.Error("Bytes of a buffer that is in use is nil")
	}
	mustRelease(t, b)
	big := mustAlloc(t, m, 2<<20)
	mustRelease(t, big)
	mustRelease(t, c)
}

// Rule: if the limit permits another slab, unused slabs are kept, even if the slabs then use the whole
// limit.
func TestUnusedSlabsAreKeptWithinTheLimit(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{MaxBytes: 2 * slabSize})
	mustRelease(t, mustAlloc(t, m, 64))
	defer mustRelease(t, mustAlloc(t, m, 128))
	if n := m.Stats().Slabs; n != 2 {
		t.Errorf("there are %d slabs, want 2: the unused slab, and a second slab that takes the rest of the limit", n)
	}
}

func TestSlabsComeOnlyWhenAllBlocksAreOut(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	var bs []Buffer
	seen := map[uint64]bool{}
	for i := range 3 * slabSize / 65536 {
		b := mustAlloc(t, m, 65536)
		if seen[b.s.addr] {
			t.Fatal("Alloc returned a block that is in use")
		}
		seen[b.s.addr] = true
		bs = append(bs, b)
		if got, want := m.Stats().Slabs, i*65536/slabSize+1; got != want {
			t.Fatalf("there are %d slabs for %d blocks in use, want %d", got, i+1, want)
		}
	}
	if s := m.Stats(); s.InUse != 3*slabSize || s.Buffers != len(bs) {
		t.Errorf("Stats returns %+v; want %d bytes and %d buffers in use", s, 3*slabSize, len(bs))
	}
	for _, b := range bs {
		mustRelease(t, b)
	}
	for range bs {
		bs = append(bs[1:], mustAlloc(t, m, 65536))
	}
	if got := m.Stats().Slabs; got != 3 {
		t.Errorf("there are %d slabs after all blocks were released and used again, want 3", got)
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
				t.Fatal("beginning an operation on a slice, releasing its buffer, or making its scatter-gather element failed")
			}
			s.lease.End()
		}); n != 0 {
			t.Errorf("%+v: %v allocations on the Go heap for each buffer, want 0", cfg, n)
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
				t.Errorf("Sub(%d, %d) of 100 bytes: %v, want a RangeError with these three numbers", c.off, c.n, err)
			}
			continue
		}
		if err != nil || sub.Len() != c.n || sub.SGE().Addr != s.SGE().Addr+uint64(c.off) || cap(sub.b) != c.n {
			t.Errorf("Sub(%d, %d) has %d bytes (capacity %d) at offset %d, error %v; want the offset and the length of the call",
				c.off, c.n, sub.Len(), cap(sub.b), sub.SGE().Addr-s.SGE().Addr, err)
		}
	}
	mustRelease(t, b)
	one := Slice{addr: 100, deviceLen: 1} // memory of another device
	if sub, err := one.Sub(0, 1); err != nil || sub.Len() != 1 || sub.SGE().Addr != 100 {
		t.Errorf("Sub(0, 1) of one byte of another device has %d bytes at address %d, error %v; want 1 byte at address 100", sub.Len(), sub.SGE().Addr, err)
	}
	var zero Slice
	if zero.begin() != nil || zero.SGE() != (verbs.SGE{}) || zero.Bytes() != nil || !zero.writable() {
		t.Error("a method of the zero Slice returned another result than wanted; want no error from begin, a zero element from SGE, nil from Bytes, and true from writable")
	}
}

func TestCloseRefusesWhileBuffersAreOutAndThenGoesOn(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	small, big := mustAlloc(t, m, 10), mustAlloc(t, m, 2<<20)
	mustRelease(t, mustAlloc(t, m, 5000)) // leaves an unused slab
	for range 2 {
		if err := m.Close(); !errors.Is(err, verbs.ErrBusy) || !strings.Contains(err.Error(), "2 buffers") {
			t.Fatalf("Close with two leased buffers: %v, want ErrBusy with the text \"2 buffers\"", err)
		}
	}
	if pd.count() != 2 {
		t.Errorf("after the refused Close there are %d registrations, want only those of the two leased buffers", pd.count())
	}
	if small.Bytes() == nil || big.Bytes() == nil {
		t.Fatal("after the refused Close, Bytes of a leased buffer is nil")
	}
	for _, n := range []int{10, 5000, 2 << 20} {
		if _, err := m.Alloc(n); !errors.Is(err, ErrClosed) {
			t.Errorf("Alloc(%d) after the refused Close: %v, want ErrClosed", n, err)
		}
	}
	if _, err := m.NewRegion(1, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("NewRegion after the refused Close: %v, want ErrClosed", err)
	}
	mustRelease(t, small)
	mustRelease(t, big)
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []MemoryConfig{{MaxBytes: -1}, {MaxBytes: slabSize - 1}, {Node: -1}} {
		if _, err := newMemory(newFakePD(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("newMemory with %+v: %v, want ErrConfig", c, err)
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
