package runtime

import (
	"errors"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

func mustRegister(t testing.TB, m *memory, b []byte, access verbs.AccessFlags) *Region {
	t.Helper()
	r, err := m.Register(b, access)
	if err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("Register of Go memory: %v, want ErrGoHeap that says what to use", err)
	}
	if pd.calls != 0 {
		t.Error("the device was given Go memory")
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
		{"same", lw, 0, 64 << 10, lw, true},
		{"contained", lw, 100, 200, lw, true},
		{"more than needed locally", lw, 100, 200, 0, true},
		{"less than needed locally", 0, 0, 64 << 10, lw, false},
		{"same, open to peers", lw | rw, 0, 64 << 10, lw | rw, true},
		{"local write beside a peer's read", lw | rr, 0, 64 << 10, rr, true},
		// What peers could do with the shared key, and were not meant to:
		{"peers would reach the whole", lw | rw, 100, 200, lw | rw, false},
		{"peers could write", lw | rw | rr, 0, 64 << 10, lw | rr, false},
		{"peers could read", lw | rr, 0, 64 << 10, lw, false},
		{"other ordering", lw, 0, 64 << 10, lw | verbs.AccessRelaxedOrdering, false},
	} {
		first := mustRegister(t, m, b, c.have)
		hits := m.Stats().CacheHits
		second := mustRegister(t, m, b[c.from:c.to], c.want)
		if shared := first.mr == second.mr; shared != c.wantShare || (m.Stats().CacheHits > hits) != c.wantShare {
			t.Errorf("%s: shared is %v, want %v", c.name, shared, c.wantShare)
		}
		if s, err := second.Slice(1, 9); err != nil || &s.Bytes()[0] != &b[c.from+1] || s.SGE().Addr != first.addr+uint64(c.from)+1 {
			t.Errorf("%s: the second region's slice names other memory, %v", c.name, err)
		}
		if second.Access() != c.want {
			t.Errorf("%s: access is %v, want what was asked for, %v", c.name, second.Access(), c.want)
		}
		mustClose(t, first, second)
		if pd.count() == 0 {
			t.Errorf("%s: closing the region ended the cached registration", c.name)
		}
		if err := m.Invalidate(b); err != nil || pd.count() != 0 {
			t.Errorf("%s: Invalidate left %d registrations, %v", c.name, pd.count(), err)
		}
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
		t.Fatalf("Invalidate with an open region: %v, want ErrBusy with the number", err)
	}
	if used.Bytes() == nil || !idle.mr.(*fakeMR).closed || beside.mr.(*fakeMR).closed {
		t.Error("Invalidate must end what is idle and overlaps, and nothing else")
	}
	// The one in use is not shared any more, and goes when it is closed.
	again := mustRegister(t, m, b[:8192], verbs.AccessLocalWrite)
	if again.mr == used.mr {
		t.Error("a registration that must go was shared once more")
	}
	mustClose(t, used)
	if !used.mr.(*fakeMR).closed {
		t.Error("a registration that must go went back to the cache")
	}
	mustClose(t, again)
	if err := m.Invalidate(b); err != nil || pd.count() != 0 {
		t.Errorf("Invalidate left %d registrations, %v", pd.count(), err)
	}
	if err := m.Invalidate(nil); err != nil {
		t.Errorf("Invalidate(nil): %v", err)
	}
}

func TestIdleRegistrationsAreBounded(t *testing.T) {
	for _, c := range []struct{ entries, want int }{{2, 2}, {-1, 0}} {
		m, pd := testMemory(t, MemoryConfig{CacheEntries: c.entries})
		b := callerMapping(t, 64<<10)
		var rs []*Region
		for i := range 5 {
			rs = append(rs, mustRegister(t, m, b[i*4096:][:4096], openToPeers))
		}
		mustClose(t, rs...)
		if got := m.Stats().CacheIdle; got != c.want || pd.count() != c.want {
			t.Errorf("%d idle registrations of %d, want %d", got, pd.count(), c.want)
		}
		if c.want == 0 {
			continue
		}
		// 3 and 4 are left; using 3 makes 4 the oldest.
		r := mustRegister(t, m, b[3*4096:][:4096], openToPeers)
		mustClose(t, r)
		mustClose(t, mustRegister(t, m, b[:4096], openToPeers))
		if r.mr.(*fakeMR).closed || !rs[4].mr.(*fakeMR).closed {
			t.Error("the least recently used registration must go first")
		}
	}
}

// Two memories in one process register the same mapping: each can forget its own.
func TestTwoMemoriesOverOneMapping(t *testing.T) {
	mapped := callerMapping(t, 4096)
	a, pa := testMemory(t, MemoryConfig{})
	b, pb := testMemory(t, MemoryConfig{})
	for _, pd := range []*fakePD{pa, pb} {
		// Between adopting and registering the other one gets its chance.
		pd.refuse = func(uint64) error { goruntime.Gosched(); return nil }
	}
	for round := range 500 {
		var wg sync.WaitGroup
		var rs [2]*Region
		for i, m := range []*memory{a, b} {
			wg.Go(func() {
				var err error
				if rs[i], err = m.Register(mapped, openToPeers); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		// Whoever goes first, the other's registration must not hold it.
		for i := range rs {
			r := rs[(i+round)%2]
			if err := errors.Join(r.Close(), r.m.Invalidate(mapped)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
