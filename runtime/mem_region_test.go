package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

const openToPeers = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead

func TestRegionIsExactlyTheRegisteredBytes(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	r, err := m.NewRegion(5000, openToPeers)
	if err != nil {
		t.Fatal(err)
	}
	mr := r.mr.(*fakeMR)
	if r.Len() != 5000 || len(r.Bytes()) != 5000 || mr.length != 5000 || mr.access != openToPeers || r.Access() != openToPeers {
		t.Errorf("region has %d bytes, %d visible, %d registered with %v", r.Len(), len(r.Bytes()), mr.length, mr.access)
	}
	for i, c := range r.Bytes() {
		if c != 0 {
			t.Fatalf("byte %d of a new region is %#x, want 0", i, c)
		}
	}
	s, err := r.Slice(100, 50)
	if err != nil || s.SGE() != (verbs.SGE{Addr: mr.IOVA() + 100, Length: 50, LKey: mr.LKey()}) || !s.writable() {
		t.Errorf("slice is %+v, %v", s.SGE(), err)
	}
	s.Bytes()[0] = 9
	if r.Bytes()[100] != 9 {
		t.Error("the slice shows other memory")
	}
	d, err := r.Remote(100, 50)
	if want := (Remote{mr.IOVA() + 100, 50, mr.RKey(), verbs.AccessRemoteWrite | verbs.AccessRemoteRead}); err != nil || d != want {
		t.Errorf("descriptor is %+v, %v; want %+v", d, err, want)
	}
	for _, c := range [][2]int{{0, 5001}, {5000, 1}, {5001, 0}, {-1, 1}, {1, -1}, {math.MaxInt, math.MaxInt}} {
		_, err1 := r.Slice(c[0], c[1])
		_, err2 := r.Remote(c[0], c[1])
		if !errors.Is(err1, ErrRange) || !errors.Is(err2, ErrRange) {
			t.Errorf("range %v: %v and %v, want ErrRange", c, err1, err2)
		}
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Fatalf("Close must be idempotent: %v", err)
		}
	}
	_, err1 := r.Slice(0, 1)
	_, err2 := r.Remote(0, 1)
	if !errors.Is(err1, ErrReleased) || !errors.Is(err2, ErrReleased) || !errors.Is(s.begin(), ErrReleased) || r.Bytes() != nil || s.Bytes() != nil {
		t.Errorf("a closed region still serves: %v, %v", err1, err2)
	}
	if pd.count() != 0 {
		t.Error("a closed region is still registered")
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
		t.Error("an impossible size was mapped")
	}
	r, err := m.NewRegion(10, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Remote(0, 10); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a descriptor of a region closed to peers: %v, want ErrInvalid", err)
	}
	if s, _ := r.Slice(0, 10); s.writable() {
		t.Error("a region without LOCAL_WRITE says that the device may write")
	}
}

func TestRegionWithOperationsInFlightDoesNotClose(t *testing.T) {
	mapped := callerMapping(t, 4096)
	for name, add := range map[string]func(*memory) (*Region, error){
		"own":    func(m *memory) (*Region, error) { return m.NewRegion(4096, openToPeers) },
		"shared": func(m *memory) (*Region, error) { return m.Register(mapped, openToPeers) },
	} {
		m, pd := testMemory(t, MemoryConfig{})
		r, err := add(m)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := r.Slice(0, 8)
		if errors.Join(s.begin(), s.begin()) != nil {
			t.Fatal("cannot begin")
		}
		if err := r.Close(); !errors.Is(err, verbs.ErrBusy) || !strings.Contains(err.Error(), "2 operations") {
			t.Errorf("%s: Close with two operations in flight: %v, want ErrBusy with the number", name, err)
		}
		s.lease.End()
		if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("%s: closing all with an operation in flight: %v, want ErrBusy", name, err)
		}
		if r.Bytes() == nil || s.begin() != nil || pd.count() != 1 {
			t.Errorf("%s: a refused Close changed the region", name)
		}
		s.lease.End()
		s.lease.End()
		if err := r.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := m.Close(); err != nil || pd.count() != 0 {
			t.Errorf("%s: Close: %v, %d registrations are left", name, err, pd.count())
		}
	}
}

func TestRegionThatTheDeviceKeepsCanBeClosedLater(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	r, err := m.NewRegion(4096, openToPeers)
	if err != nil {
		t.Fatal(err)
	}
	mr := r.mr.(*fakeMR)
	mr.busy = verbs.ErrBusy // a memory window is bound to it
	for range 2 {
		if err := r.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Fatalf("Close of a region the device keeps: %v, want ErrBusy", err)
		}
	}
	if m.Stats().Mapped == 0 {
		t.Error("memory that the device keeps was unmapped")
	}
	mr.busy = nil
	if err := r.Close(); err != nil || !mr.closed {
		t.Errorf("Close after that: %v, deregistered %v", err, mr.closed)
	}
	// A buffer's registration that cannot end is kept and ended by Close.
	b := mustAlloc(t, m, 3<<20)
	mr = b.s.lease.home.(*bigBuffer).mr.(*fakeMR)
	mr.busy = verbs.ErrBusy
	if err := b.Release(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Release of a buffer the device keeps: %v, want the reason", err)
	}
	if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Close: %v, want ErrBusy", err)
	}
	mr.busy = nil
}
