package runtime

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// fakePD is a protection domain that registers memory and does nothing with it.
// As real ones it pins the smallest arena that holds the range.
type fakePD struct {
	verbs.PD
	mu     sync.Mutex
	live   map[*fakeMR]struct{}
	calls  int
	refuse func(length uint64) error // what RegMR answers; nil: no error
}

func newFakePD() *fakePD { return &fakePD{live: map[*fakeMR]struct{}{}} }

// ioOffset sets addresses in requests apart from addresses in memory, as a
// zero-based region does.
const ioOffset = 1 << 20

func (p *fakePD) RegMR(addr, length, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.refuse != nil {
		if err := p.refuse(length); err != nil {
			return nil, err
		}
	}
	a, ok := mem.Find(addr, int(length))
	if !ok {
		return nil, &verbs.OpError{Op: "ibv_reg_mr", Errno: syscall.EFAULT}
	}
	if err := a.Pin(); err != nil {
		return nil, err
	}
	m := &fakeMR{pd: p, arena: a, addr: addr, length: length, access: access, key: uint32(p.calls)}
	p.live[m] = struct{}{}
	return m, nil
}

// bytes is how much is registered.
func (p *fakePD) bytes() (n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.live {
		n += m.length
	}
	return n
}

func (p *fakePD) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live)
}

type fakeMR struct {
	pd           *fakePD
	arena        *mem.Arena
	addr, length uint64
	access       verbs.AccessFlags
	key          uint32
	busy         error // what Close answers
	closed       bool
}

func (m *fakeMR) Close() error {
	m.pd.mu.Lock()
	defer m.pd.mu.Unlock()
	if m.busy != nil {
		return m.busy
	}
	if !m.closed {
		m.closed = true
		delete(m.pd.live, m)
		m.arena.Unpin()
	}
	return nil
}

func (m *fakeMR) String() string { return fmt.Sprintf("fake MR %d", m.key) }
func (m *fakeMR) Addr() uint64   { return m.addr }
func (m *fakeMR) Length() uint64 { return m.length }
func (m *fakeMR) IOVA() uint64   { return m.addr + ioOffset }
func (m *fakeMR) LKey() uint32   { return m.key }
func (m *fakeMR) RKey() uint32   { return m.key | 1<<31 }
func (m *fakeMR) Handle() uint64 { return uint64(m.key) }

// testMemory is a Memory on a fake domain. At the end it must close, with
// nothing left behind.
func testMemory(t testing.TB, cfg MemoryConfig) (*memory, *fakePD) {
	t.Helper()
	notOnDevice(t, "its registrations are made up")
	arenas, bytes := mem.Live()
	pd := newFakePD()
	m, err := newMemory(pd, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := pd.count(); n != 0 {
			t.Errorf("%d registrations are left", n)
		}
		if a, b := mem.Live(); a != arenas || b != bytes {
			t.Errorf("%d arenas of %d bytes are left", a-arenas, b-bytes)
		}
		if s := m.Stats(); s.Mapped != 0 || s.Registered != 0 || s.InUse != 0 || s.Slabs != 0 || s.Regions != 0 {
			t.Errorf("a closed memory still counts %+v", s)
		}
	})
	return m, pd
}

func mustAlloc(t testing.TB, m *memory, n int) Buffer {
	t.Helper()
	b, err := m.Alloc(n)
	if err != nil {
		t.Fatalf("Alloc(%d): %v", n, err)
	}
	return b
}

func mustRelease(t testing.TB, b Buffer) {
	t.Helper()
	if err := b.Release(); err != nil {
		t.Fatalf("Release: %v", err)
	}
}
