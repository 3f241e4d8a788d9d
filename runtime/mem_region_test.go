package runtime

import (
	"errors"
	"math"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

const openToPeers = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead

func TestRegionIsExactlyTheRegisteredBytes(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	r := must.Get(m.NewRegion(5000, openToPeers))(t)
	mr := r.mr.(*fakeMR)
	if r.Len() != 5000 || len(r.Bytes()) != 5000 || mr.length != 5000 || mr.access != openToPeers || r.Access() != openToPeers {
		t.Errorf("the region has the length %d, %d visible bytes and %d registered bytes, want 5000 each; its access is %v and that of its registration %v, want %v",
			r.Len(), len(r.Bytes()), mr.length, r.Access(), mr.access, openToPeers)
	}
	for i, c := range r.Bytes() {
		if c != 0 {
			t.Fatalf("byte %d of a new region is %#x, want 0", i, c)
		}
	}
	s, err := r.Slice(100, 50)
	if err != nil || s.SGE() != (verbs.SGE{Addr: mr.IOVA() + 100, Length: 50, LKey: mr.LKey()}) || !s.writable() {
		t.Errorf("Slice(100, 50) has the element %+v, error %v, and is writable: %t; want 50 bytes at %#x with lkey %d, writable",
			s.SGE(), err, s.writable(), mr.IOVA()+100, mr.LKey())
	}
	s.Bytes()[0] = 9
	if r.Bytes()[100] != 9 {
		t.Error("a byte written through the slice is not in the region at offset 100")
	}
	d, err := r.Remote(100, 50)
	if want := (Remote{mr.IOVA() + 100, 50, mr.RKey(), verbs.AccessRemoteWrite | verbs.AccessRemoteRead}); err != nil || d != want {
		t.Errorf("Remote(100, 50) returned %+v, %v; want %+v", d, err, want)
	}
	for _, c := range [][2]int{{0, 5001}, {5000, 1}, {5001, 0}, {-1, 1}, {1, -1}, {math.MaxInt, math.MaxInt}} {
		_, err1 := r.Slice(c[0], c[1])
		_, err2 := r.Remote(c[0], c[1])
		if !errors.Is(err1, ErrRange) || !errors.Is(err2, ErrRange) {
			t.Errorf("Slice and Remote with offset and length %v: %v and %v, want ErrRange from both", c, err1, err2)
		}
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Fatalf("Close: %v, want no error from the first and the second call", err)
		}
	}
	_, err1 := r.Slice(0, 1)
	_, err2 := r.Remote(0, 1)
	if !errors.Is(err1, ErrReleased) || !errors.Is(err2, ErrReleased) || !errors.Is(s.begin(), ErrReleased) || r.Bytes() != nil || s.Bytes() != nil {
		t.Errorf("after Close: Slice %v, Remote %v; want ErrReleased from both and from an operation on an older slice, and nil from Bytes", err1, err2)
	}
	if pd.count() != 0 {
		t.Error("after Close the region is still registered")
	}
}

func TestRegionRefuses(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	for _, c := range []struct {
		size   int
		access verbs.AccessFlags
	}{{0, 0}, {-1, 0}, {10, verbs.AccessRemoteWrite}, {10, verbs.AccessRemoteAtomic}} {
		if _, err := m.NewRegion(c.size, c.access); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("NewRegion(%d, %v): %v, want ErrInvalid", c.size, c.access, err)
		}
	}
	if _, err := m.Register(nil, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("Register(nil): %v, want ErrInvalid", err)
	}
	if _, err := m.NewRegion(math.MaxInt, 0); err == nil {
		t.Error("NewRegion of math.MaxInt bytes succeeded, want an error")
	}
	r := must.Get(m.NewRegion(10, 0))(t)
	if _, err := r.Remote(0, 10); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("Remote of a region without remote access: %v, want ErrInvalid", err)
	}
	if s, _ := r.Slice(0, 10); s.writable() {
		t.Error("a slice of a region without LOCAL_WRITE is writable, want it not writable")
	}
}

func TestRegionWithOperationsInFlightDoesNotClose(t *testing.T) {
	mapped := callerMapping(t, 4096)
	for name, add := range map[string]func(*memory) (*Region, error){
		"region of NewRegion": func(m *memory) (*Region, error) { return m.NewRegion(4096, openToPeers) },
		"region of Register":  func(m *memory) (*Region, error) { return m.Register(mapped, openToPeers) },
	} {
		m, pd := testMemory(t, MemoryConfig{})
		r := must.Get(add(m))(t)
		s, _ := r.Slice(0, 8)
		if errors.Join(s.begin(), s.begin()) != nil {
			t.Fatalf("%s: beginning two operations on the open region failed", name)
		}
		if err := r.Close(); !errors.Is(err, verbs.ErrBusy) || !strings.Contains(err.Error(), "2 operations") {
			t.Errorf("%s: Close with two operations in flight: %v, want ErrBusy with the text \"2 operations\"", name, err)
		}
		s.lease.End()
		if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("%s: Close of the memory with one operation in flight: %v, want ErrBusy", name, err)
		}
		if r.Bytes() == nil || s.begin() != nil || pd.count() != 1 {
			t.Errorf("%s: after a refused Close there are %d registrations (want 1), or the region cannot be used", name, pd.count())
		}
		s.lease.End()
		s.lease.End()
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close without operations in flight: %v, want no error", name, err)
		}
		if err := m.Close(); err != nil || pd.count() != 0 {
			t.Errorf("%s: Close of the memory: %v, with %d registrations left; want no error and none left", name, err, pd.count())
		}
	}
}

func TestRegionThatTheDeviceKeepsCanBeClosedLater(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	r := must.Get(m.NewRegion(4096, openToPeers))(t)
	mr := r.mr.(*fakeMR)
	mr.busy = verbs.ErrBusy // as if a memory window were bound to the region
	for range 2 {
		if err := r.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Fatalf("Close of a region that the device refuses to deregister: %v, want ErrBusy", err)
		}
	}
	if m.Stats().Mapped == 0 {
		t.Error("memory that the device refused to deregister was unmapped")
	}
	mr.busy = nil
	if err := r.Close(); err != nil || !mr.closed {
		t.Errorf("Close when the device does not refuse any more: %v, deregistered: %t; want no error and true", err, mr.closed)
	}
	// If the device refuses to deregister a released buffer, m keeps the registration, and m.Close tries
	// again. (testMemory calls m.Close at the end of the test and expects no error.)
	b := mustAlloc(t, m, 3<<20)
	mr = b.s.lease.home.(*bigBuffer).mr.(*fakeMR)
	mr.busy = verbs.ErrBusy
	mustRelease(t, b)
	if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Close while the device refuses to deregister the buffer: %v, want ErrBusy", err)
	}
	mr.busy = nil
}

func mustRegister(t testing.TB, m *memory, b []byte, access verbs.AccessFlags) *Region {
	t.Helper()
	r := must.Get(m.Register(b, access))(t)
	return r
}

func mustClose(t testing.TB, rs ...*Region) {
	t.Helper()
	for _, r := range rs {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGoMemoryIsRefusedWithAdvice(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	_, err := m.Register(make([]byte, 1<<16), verbs.AccessLocalWrite)
	if !errors.Is(err, mem.ErrGoHeap) || !strings.Contains(err.Error(), "NewRegion") {
		t.Errorf("Register of memory on the Go heap: %v, want ErrGoHeap with the text \"NewRegion\"", err)
	}
	if pd.calls != 0 {
		t.Error("the device was asked to register memory on the Go heap")
	}
}

func TestRegistrationsAreShared(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	b := callerMapping(t, 64<<10)
	const lw, rr, rw = verbs.AccessLocalWrite, verbs.AccessRemoteRead, verbs.AccessRemoteWrite
	for _, c := range []struct {
		name      string
		have      verbs.AccessFlags
		from, to  int
		want      verbs.AccessFlags
		wantShare bool
	}{
		{"the same region twice", lw, 0, 64 << 10, lw, true},
		{"a part of the first region", lw, 100, 200, lw, true},
		{"the first region permits more local access than the second", lw, 100, 200, 0, true},
		{"the first region permits less local access than the second", 0, 0, 64 << 10, lw, false},
		// A shared key would outlive the Close of one of the regions.
		{"the same region twice, open to peers", lw | rw, 0, 64 << 10, lw | rw, false},
		{"only the first region is open to peers", lw | rr, 0, 64 << 10, lw, false},
		{"only the second region is open to peers", lw, 0, 64 << 10, lw | rr, false},
		{"only the second region has relaxed ordering", lw, 0, 64 << 10, lw | verbs.AccessRelaxedOrdering, false},
	} {
		first := mustRegister(t, m, b, c.have)
		hits := m.Stats().CacheHits
		second := mustRegister(t, m, b[c.from:c.to], c.want)
		if shared := first.mr == second.mr; shared != c.wantShare || (m.Stats().CacheHits > hits) != c.wantShare {
			t.Errorf("%s: the two regions: registration shared=%t, cache hit=%t; want %t for both",
				c.name, shared, m.Stats().CacheHits > hits, c.wantShare)
		}
		if s, err := second.Slice(1, 9); err != nil || &s.Bytes()[0] != &b[c.from+1] || s.SGE().Addr != first.addr+uint64(c.from)+1 {
			t.Errorf("%s: Slice(1, 9) of the second region (error %v) does not begin at byte %d of the mapping", c.name, err, c.from+1)
		}
		if second.Access() != c.want {
			t.Errorf("%s: the second region has the access %v, want %v as requested", c.name, second.Access(), c.want)
		}
		mustClose(t, first, second)
		for _, r := range []*Region{first, second} {
			if forPeers := r.access&(rr|rw) != 0; r.mr.(*fakeMR).closed != forPeers {
				t.Errorf("%s: closing a region with access %v ended its registration: %t, want %t", c.name, r.access, !forPeers, forPeers)
			}
		}
		if err := m.Invalidate(b); err != nil || pd.count() != 0 {
			t.Errorf("%s: Invalidate left %d registrations, error %v; want none", c.name, pd.count(), err)
		}
	}
}

// Rule: a region with remote access has a key of its own, which its Close ends. If the device refuses,
// Close fails, and a later Close tries again.
func TestCloseEndsTheKeyOfARegisteredRegion(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	b := callerMapping(t, 8192)
	first, second := mustRegister(t, m, b, openToPeers), mustRegister(t, m, b, openToPeers)
	one, two := first.mr.(*fakeMR), second.mr.(*fakeMR)
	if one.RKey() == two.RKey() {
		t.Errorf("two regions of one range have the key %#x, want a key for each", one.RKey())
	}
	one.busy = verbs.ErrBusy
	if err := first.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Close while the device refuses: %v, want its error", err)
	}
	if err := m.Invalidate(b); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Invalidate with open regions: %v, want ErrBusy", err)
	}
	one.busy = nil
	mustClose(t, first)
	if !one.closed || two.closed {
		t.Errorf("after the Close of the first region: its registration ended: %t, that of the second: %t; want true, false", one.closed, two.closed)
	}
	mustClose(t, second)
	if s := m.Stats(); pd.count() != 0 || s.CacheIdle != 0 || s.CacheHits+s.CacheMisses != 0 || s.Registered != 0 {
		t.Errorf("%d registrations are left, Stats %+v; want none, and no use of the cache", pd.count(), s)
	}
	must.Do(t, m.Invalidate(b))
}

// BenchmarkRegister is Register and Close of 4 KiB. Without remote access the registration is cached.
func BenchmarkRegister(b *testing.B) {
	for _, c := range []struct {
		name   string
		access verbs.AccessFlags
	}{{"local", verbs.AccessLocalWrite}, {"remote", openToPeers}} {
		b.Run(c.name, func(b *testing.B) {
			rt := mainBed.open(b, Config{}, 0)
			own := callerMapping(b, 4096)
			for b.Loop() {
				must.Do(b, must.Get(rt.Register(own, c.access))(b).Close())
			}
			must.Do(b, rt.Invalidate(own))
		})
	}
}

func TestInvalidateRefusesWhatIsInUse(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	b := callerMapping(t, 64<<10)
	used := mustRegister(t, m, b[:8192], verbs.AccessLocalWrite)
	idle := mustRegister(t, m, b[4096:12288], verbs.AccessLocalWrite)
	beside := mustRegister(t, m, b[16384:20480], verbs.AccessLocalWrite)
	mustClose(t, idle, beside)
	err := m.Invalidate(b[8191:16384])
	if !errors.Is(err, verbs.ErrBusy) || !strings.Contains(err.Error(), "1 registrations") {
		t.Fatalf("Invalidate with an open region: %v, want ErrBusy with the text \"1 registrations\"", err)
	}
	if used.Bytes() == nil || !idle.mr.(*fakeMR).closed || beside.mr.(*fakeMR).closed {
		t.Errorf("after Invalidate: open region usable=%t, unused registration in the range deregistered=%t, unused registration outside the range deregistered=%t; want true, true, false",
			used.Bytes() != nil, idle.mr.(*fakeMR).closed, beside.mr.(*fakeMR).closed)
	}
	// After Invalidate, new regions do not share the registration of the open region. This registration
	// ends when the open region is closed.
	again := mustRegister(t, m, b[:8192], verbs.AccessLocalWrite)
	if again.mr == used.mr {
		t.Error("after Invalidate, a new region shares the registration of the open region, want a new registration")
	}
	mustClose(t, used)
	if !used.mr.(*fakeMR).closed {
		t.Error("closing the open region after Invalidate has not ended its registration, want it deregistered")
	}
	mustClose(t, again)
	if err := m.Invalidate(b); err != nil || pd.count() != 0 {
		t.Errorf("Invalidate without open regions left %d registrations, error %v; want none", pd.count(), err)
	}
	if err := m.Invalidate(nil); err != nil {
		t.Errorf("Invalidate(nil): %v, want no error", err)
	}
}

func TestIdleRegistrationsAreBounded(t *testing.T) {
	for _, c := range []struct{ entries, want int }{{2, 2}, {-1, 0}} {
		m, pd := testMemory(t, MemoryConfig{CacheEntries: c.entries})
		b := callerMapping(t, 64<<10)
		var rs []*Region
		for i := range 5 {
			rs = append(rs, mustRegister(t, m, b[i*4096:][:4096], verbs.AccessLocalWrite))
		}
		mustClose(t, rs...)
		if got := m.Stats().CacheIdle; got != c.want || pd.count() != c.want {
			t.Errorf("CacheEntries %d: there are %d registrations, and Stats counts %d unused registrations; want both numbers to be %d", c.entries, pd.count(), got, c.want)
		}
		if c.want == 0 {
			continue
		}
		// Only the registrations of rs[3] and rs[4] are left. The registration of rs[3] is used again, so
		// that the registration of rs[4] is the least recently used one.
		r := mustRegister(t, m, b[3*4096:][:4096], verbs.AccessLocalWrite)
		mustClose(t, r)
		mustClose(t, mustRegister(t, m, b[:4096], verbs.AccessLocalWrite))
		if r.mr.(*fakeMR).closed || !rs[4].mr.(*fakeMR).closed {
			t.Errorf("after another registration: rs[3] deregistered=%t, rs[4] deregistered=%t; want only the least recently used one, rs[4], deregistered",
				r.mr.(*fakeMR).closed, rs[4].mr.(*fakeMR).closed)
		}
	}
}

// Rule: if two memories in one process register the same mapping at the same time, both succeed. Each
// of them can invalidate its own registration.
func TestTwoMemoriesOverOneMapping(t *testing.T) {
	mapped := callerMapping(t, 4096)
	a, pa := testMemory(t, MemoryConfig{})
	b, pb := testMemory(t, MemoryConfig{})
	for _, pd := range []*fakePD{pa, pb} {
		// Let the other goroutine run in the middle of Register. At this point Register has adopted
		// the mapping (made it an arena of package mem), but not registered it.
		pd.refuse = func(uint64) error { goruntime.Gosched(); return nil }
	}
	for round := range 500 {
		var wg sync.WaitGroup
		var rs [2]*Region
		for i, m := range []*memory{a, b} {
			wg.Go(func() {
				var err error
				if rs[i], err = m.Register(mapped, openToPeers); err != nil {
					t.Errorf("Register: %v, want no error", err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		// Close the two regions in one order in even rounds, and in the other order in odd rounds.
		for i := range rs {
			r := rs[(i+round)%2]
			if err := errors.Join(r.Close(), r.m.Invalidate(mapped)); err != nil {
				t.Fatalf("closing the region and invalidating its registration: %v", err)
			}
		}
	}
}

// lockable limits the registered bytes, as the kernel limits locked memory. A registration that would
// exceed the limit fails with errno.
func (p *fakePD) lockable(m *memory, limit uint64, errno syscall.Errno) {
	m.memlock = func() (uint64, bool) { return limit, true }
	p.refuse = func(n uint64) error {
		var have uint64
		for r := range p.live {
			have += r.length
		}
		if have+n > limit {
			return &verbs.OpError{Op: "ibv_reg_mr", Object: "PD", Errno: errno}
		}
		return nil
	}
}

func TestMemlockSaysLimitWantedAndRemedy(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EPERM, syscall.EAGAIN} {
		m, pd := testMemory(t, MemoryConfig{})
		pd.lockable(m, 8<<20, errno)
		r := must.Get(m.NewRegion(5<<20, openToPeers))(t)
		mapped := callerMapping(t, 4<<20)
		arenas, _ := mem.Live()
		for what, f := range map[string]func() error{
			"NewRegion": func() error { _, err := m.NewRegion(4<<20, 0); return err },
			"Register":  func() error { _, err := m.Register(mapped, 0); return err },
			"Alloc":     func() error { _, err := m.Alloc(4 << 20); return err },
		} {
			err := f()
			e, ok := errors.AsType[*MemlockError](err)
			if !ok || !errors.Is(err, verbs.ErrMemlock) || !errors.Is(err, errno) || e.Limit != 8<<20 || e.Wanted != 4<<20 || e.Registered != 5<<20 {
				t.Fatalf("%s: %v; want a MemlockError with the limit %d, %d wanted bytes, %d registered bytes and %v", what, err, 8<<20, 4<<20, 5<<20, errno)
			}
			for _, word := range []string{"4194304", "5242880", "8388608", "ulimit -l", "LimitMEMLOCK", "--ulimit memlock", "CAP_IPC_LOCK"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: the error %q does not contain %q", what, err, word)
				}
			}
		}
		if now, _ := mem.Live(); now != arenas {
			t.Errorf("the refused registrations left %d mappings, want none", now-arenas)
		}
		mustClose(t, r)
	}
}

func TestMemlockGivesUpWhatIsUnusedFirst(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	pd.lockable(m, 6<<20, syscall.ENOMEM)
	mustRelease(t, mustAlloc(t, m, 64)) // an unused slab
	mapped := callerMapping(t, 4<<20)
	mustClose(t, mustRegister(t, m, mapped, verbs.AccessLocalWrite)) // an unused registration
	if pd.bytes() != 6<<20 {
		t.Fatalf("%d bytes are registered, but the test needs as many as the limit, %d", pd.bytes(), 6<<20)
	}
	r, err := m.NewRegion(6<<20, openToPeers)
	if err != nil {
		t.Fatalf("a registration that fits after all unused memory is deregistered: %v, want no error", err)
	}
	mustClose(t, r)
}

// Rule: if the device refuses AccessFlushPersistent for ordinary memory, the error says which memory
// supports this access. (The error of Soft-RoCE itself is only "invalid argument".)
func TestPersistenceThatIsRefusedSaysWhatItWants(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	m.flushes = true // otherwise the device is not asked for the access
	pd.refuse = func(uint64) error {
		return &verbs.OpError{Op: "ibv_reg_mr", Errno: syscall.EINVAL, Err: verbs.ErrInvalid}
	}
	_, err := m.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessFlushPersistent)
	mistake(t, "NewRegion with AccessFlushPersistent", err, verbs.ErrInvalid, "NewFileRegion", "DAX")
	_, err = m.NewRegion(64, verbs.AccessLocalWrite)
	if !errors.Is(err, syscall.EINVAL) || strings.Contains(err.Error(), "DAX") {
		t.Errorf("NewRegion without AccessFlushPersistent: %v, want EINVAL without the advice about DAX", err)
	}
}

// Rule: the limit on locked memory makes a registration fail with ENOMEM, EPERM or EAGAIN. If another
// cause makes a registration fail with one of these, the error is not a MemlockError.
func TestOtherRefusalsAreNotMemlock(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	unlimited := func() (uint64, bool) { return math.MaxUint64, true }
	limited := func() (uint64, bool) { return 1 << 20, true }
	for _, c := range []struct {
		name    string
		memlock func() (uint64, bool)
		err     error
		want    bool
	}{
		{"no limit", unlimited, &verbs.OpError{Errno: syscall.ENOMEM}, false},
		{"the provider names another cause", limited, &verbs.OpError{Errno: syscall.ENOMEM, Err: errors.New("all regions are in use")}, false},
		{"an errno that the limit does not cause", limited, &verbs.OpError{Errno: syscall.EFAULT}, false},
		{"the provider names the limit", unlimited, &verbs.OpError{Errno: syscall.ENOMEM, Err: verbs.ErrMemlock}, true},
		{"a limit, and an errno without a cause", limited, syscall.ENOMEM, true},
		{"an unknown limit", func() (uint64, bool) { return 0, false }, syscall.ENOMEM, true},
	} {
		m.memlock = c.memlock
		pd.refuse = func(uint64) error { return c.err }
		_, err := m.NewRegion(100, 0)
		if _, is := errors.AsType[*MemlockError](err); is != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: the error is %v; MemlockError=%t, want %t; errors.Is(err, %v)=%t, want true", c.name, err, is, c.want, c.err, errors.Is(err, c.err))
		}
	}
}

// Rule: if the registration of on-demand memory is refused, the error is not a MemlockError, and no
// unused memory is deregistered. (On-demand memory is not locked, so the limit on locked memory is not
// the cause.)
func TestMemoryOnDemandIsNotLockedOut(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EPERM, syscall.EAGAIN} {
		m, pd := testMemory(t, MemoryConfig{})
		pd.lockable(m, 4<<20, errno)
		mustRelease(t, mustAlloc(t, m, 64)) // an unused slab
		kept := pd.bytes()
		_, err := m.NewRegion(8<<20, verbs.AccessLocalWrite|verbs.AccessOnDemand)
		if !errors.Is(err, errno) || errors.Is(err, verbs.ErrMemlock) || strings.Contains(err.Error(), "ulimit") {
			t.Errorf("the errno %v became the error %v, want one that does not name the limit on locked memory", errno, err)
		}
		if pd.bytes() != kept {
			t.Errorf("%d unused bytes were deregistered for on-demand memory, want none", kept-pd.bytes())
		}
	}
}
