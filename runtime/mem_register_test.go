package runtime

import (
	"errors"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// lockable makes the domain refuse what passes limit bytes, as the kernel does.
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
		r, err := m.NewRegion(5<<20, openToPeers)
		if err != nil {
			t.Fatal(err)
		}
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
				t.Fatalf("%s: %v, want MemlockError with limit, wanted, registered and %v", what, err, errno)
			}
			for _, word := range []string{"4194304", "5242880", "8388608", "ulimit -l", "LimitMEMLOCK", "--ulimit memlock", "CAP_IPC_LOCK"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: %q does not say %q", what, err, word)
				}
			}
		}
		if now, _ := mem.Live(); now != arenas {
			t.Errorf("refused registrations left %d mappings", now-arenas)
		}
		mustClose(t, r)
	}
}

func TestMemlockGivesUpWhatIsUnusedFirst(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	pd.lockable(m, 6<<20, syscall.ENOMEM)
	mustRelease(t, mustAlloc(t, m, 64)) // an unused slab
	mapped := callerMapping(t, 4<<20)
	mustClose(t, mustRegister(t, m, mapped, openToPeers)) // an unused registration
	if pd.bytes() != 6<<20 {
		t.Fatalf("%d bytes registered, the test wants the limit", pd.bytes())
	}
	r, err := m.NewRegion(6<<20, openToPeers)
	if err != nil {
		t.Fatalf("a registration that fits once the unused go: %v", err)
	}
	mustClose(t, r)
}

// Rule: who wants persistence of memory that has none is told where there is some.
// Soft-RoCE's answer was a bare "invalid argument".
func TestPersistenceThatIsRefusedSaysWhatItWants(t *testing.T) {
	m, pd := testMemory(t, MemoryConfig{})
	pd.refuse = func(uint64) error {
		return &verbs.OpError{Op: "ibv_reg_mr", Errno: syscall.EINVAL, Err: verbs.ErrInvalid}
	}
	_, err := m.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessFlushPersistent)
	mistake(t, "plain memory", err, verbs.ErrInvalid, "NewFileRegion", "DAX")
	_, err = m.NewRegion(64, verbs.AccessLocalWrite)
	if !errors.Is(err, syscall.EINVAL) || strings.Contains(err.Error(), "DAX") {
		t.Errorf("another refusal: %v", err)
	}
}

// The same errno has other reasons, which must not be blamed on the limit.
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
		{"a reason of the provider", limited, &verbs.OpError{Errno: syscall.ENOMEM, Err: errors.New("all regions are in use")}, false},
		{"another errno", limited, &verbs.OpError{Errno: syscall.EFAULT}, false},
		{"the provider says so", unlimited, &verbs.OpError{Errno: syscall.ENOMEM, Err: verbs.ErrMemlock}, true},
		{"a limit and a bare errno", limited, syscall.ENOMEM, true},
		{"a limit nobody knows", func() (uint64, bool) { return 0, false }, syscall.ENOMEM, true},
	} {
		m.memlock = c.memlock
		pd.refuse = func(uint64) error { return c.err }
		_, err := m.NewRegion(100, 0)
		if _, is := errors.AsType[*MemlockError](err); is != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %v is a MemlockError: %v, want %v", c.name, err, is, c.want)
		}
	}
}

// Rule: memory on demand is not locked, so its refusal is never the limit's, and
// what others do not use stays registered.
func TestMemoryOnDemandIsNotLockedOut(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EPERM, syscall.EAGAIN} {
		m, pd := testMemory(t, MemoryConfig{})
		pd.lockable(m, 4<<20, errno)
		mustRelease(t, mustAlloc(t, m, 64)) // an unused slab
		kept := pd.bytes()
		_, err := m.NewRegion(8<<20, verbs.AccessLocalWrite|verbs.AccessOnDemand)
		if !errors.Is(err, errno) || errors.Is(err, verbs.ErrMemlock) || strings.Contains(err.Error(), "ulimit") {
			t.Errorf("%v became %v, which blames the limit on locked memory", errno, err)
		}
		if pd.bytes() != kept {
			t.Errorf("%d bytes were given up for memory that nobody locks", kept-pd.bytes())
		}
	}
}
