package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"pgregory.net/rapid"
)

// TestBuffersAgainstModel compares buffers and their operations with a model, while slabs are added
// and removed. It checks that no byte has two owners, that a buffer is not given back before its
// last operation has ended, and that a released buffer refuses every use.
func TestBuffersAgainstModel(t *testing.T) {
	notOnDevice(t, "the test uses no device")
	rapid.Check(t, func(rt *rapid.T) {
		m := must.Get(newMemory(newFakePD(), MemoryConfig{PoisonFreed: true, MaxBytes: 4 * slabSize}))(rt)
		type owned struct {
			b        Buffer
			n        int
			tag      byte
			inFlight int
			released bool
		}
		var all []*owned // buffers that are not free yet
		end := func(o *owned) {
			o.b.s.lease.End()
			o.inFlight--
		}
		pick := func(what string) *owned {
			if len(all) == 0 {
				rt.Skip("no buffer is leased")
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(rt, what)]
		}
		sweep := func() {
			keep := all[:0]
			for _, o := range all {
				if !o.released || o.inFlight > 0 {
					keep = append(keep, o)
				}
			}
			all = keep
		}
		var tag byte
		rt.Repeat(map[string]func(*rapid.T){
			"alloc": func(rt *rapid.T) {
				n := rapid.OneOf(rapid.IntRange(2049, 9000), rapid.IntRange(1<<19, MaxPooled), rapid.Just(3<<20)).Draw(rt, "n")
				b, err := m.Alloc(n)
				if errors.Is(err, ErrNoMemory) {
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				for _, o := range all {
					if b.s.addr < o.b.s.addr+uint64(o.n) && o.b.s.addr < b.s.addr+uint64(n) {
						rt.Fatalf("Alloc returned %d bytes at %#x, which overlap a buffer of %d bytes at %#x that is not free yet", n, b.s.addr, o.n, o.b.s.addr)
					}
				}
				tag++
				for _, i := range looked(b) {
					b.s.b[i] = tag
				}
				all = append(all, &owned{b: b, n: n, tag: tag})
			},
			"begin": func(rt *rapid.T) {
				o := pick("begin")
				s := o.b.Slice()
				if err := s.begin(); (err == nil) == o.released {
					rt.Fatalf("begin on a buffer (released: %t) returned %v, want an error only if it was released", o.released, err)
				} else if err == nil {
					o.inFlight++
				}
			},
			"end": func(rt *rapid.T) {
				if o := pick("end"); o.inFlight > 0 {
					end(o)
				}
				sweep()
			},
			"release": func(rt *rapid.T) {
				o := pick("release")
				if err := o.b.Release(); (err == nil) == o.released {
					rt.Fatalf("Release of a buffer (already released: %t) returned %v, want an error only if it was released", o.released, err)
				}
				o.released = true
				sweep()
			},
			"": func(rt *rapid.T) {
				for _, o := range all {
					if (o.b.Bytes() == nil) != (o.released || o.n == 0 && o.b.s.b == nil) {
						rt.Fatalf("Bytes of a buffer of %d bytes (released=%t): the result is nil=%t, want nil only if the buffer was released", o.n, o.released, o.b.Bytes() == nil)
					}
					for _, i := range looked(o.b) {
						if c := o.b.s.b[i]; c != o.tag {
							rt.Fatalf("byte %d of a buffer that is not free is %#x, want %#x", i, c, o.tag)
						}
					}
				}
			},
		})
		for _, o := range all {
			if !o.released {
				if err := o.b.Release(); err != nil {
					rt.Fatal(err)
				}
			}
			for o.inFlight > 0 {
				end(o)
			}
		}
		if err := m.Close(); err != nil {
			rt.Fatal(err)
		}
	})
}

// looked returns the offsets of the bytes that the model writes and reads: the first
// 64 and the last 64 bytes of b.
func looked(b Buffer) (is []int) {
	for i, n := 0, len(b.s.b); i < n; i++ {
		if i == 64 {
			i = max(i, n-64)
		}
		is = append(is, i)
	}
	return is
}

// TestBuffersUnderContention starts several goroutines that allocate buffers, start operations on
// the buffers, and release the buffers at any moment. Two other goroutines play the device: they
// write to the memory and end the operations later. The memory limit is low, so slabs are added and
// removed. The memory poisons free blocks, which detects a block that becomes free too early.
func TestBuffersUnderContention(t *testing.T) {
	const goroutines = 8
	rounds := fewer(3000)
	if raceEnabled {
		rounds = 300 // the race detector makes the test slow, because it tracks each lease of each slab
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m, _ := testMemory(t, MemoryConfig{PoisonFreed: true, MaxBytes: 3 * slabSize})
	type op struct {
		s    Slice
		mark uint64
	}
	ops := make(chan op, 64)
	var device sync.WaitGroup
	for range 2 {
		device.Go(func() {
			for o := range ops {
				// Use the field o.s.b, not o.s.Bytes(). After Release, Bytes returns nil, but the device
				// still uses the memory.
				if got := binary.LittleEndian.Uint64(o.s.b); got != o.mark {
					t.Errorf("the memory of an operation in flight has %#x, want %#x", got, o.mark)
				}
				binary.LittleEndian.PutUint64(o.s.b, o.mark)
				o.s.lease.End()
			}
		})
	}
	var users sync.WaitGroup
	for g := range goroutines {
		users.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			sizes := []int{600, 3000, 3000, 60000, 60000, 1 << 20, 1<<20 + 1}
			for i := range rounds {
				b, err := m.Alloc(sizes[r.IntN(len(sizes))])
				if errors.Is(err, ErrNoMemory) {
					continue
				}
				if err != nil {
					t.Errorf("Alloc: %v, want no error or ErrNoMemory", err)
					return
				}
				mark := uint64(g)<<32 | uint64(i)
				binary.LittleEndian.PutUint64(b.Bytes(), mark)
				for range r.IntN(3) {
					s := b.Slice()
					if err := s.begin(); err != nil {
						t.Errorf("beginning an operation on a leased buffer: %v, want no error", err)
					}
					ops <- op{s, mark}
				}
				if err := b.Release(); err != nil {
					t.Errorf("Release: %v, want no error", err)
				}
				if err := b.Release(); !errors.Is(err, ErrReleased) {
					t.Errorf("the second Release of a buffer: %v, want ErrReleased", err)
				}
			}
		})
	}
	users.Wait()
	close(ops)
	device.Wait()
}

// fakePD is a protection domain without a device. It can only register memory. RegMR pins the arena of
// package mem that has the memory, as the providers do.
type fakePD struct {
	verbs.PD
	mu     sync.Mutex
	live   map[*fakeMR]struct{}
	calls  int
	refuse func(length uint64) error // if set, its error makes RegMR fail
}

func newFakePD() *fakePD { return &fakePD{live: map[*fakeMR]struct{}{}} }

// ioOffset is the difference between the address of a byte in work requests (IOVA) and the address of
// the byte in this process. It is not 0, so that the tests detect code that confuses the two
// addresses. On a real device the two addresses differ in a region that is registered as zero-based.
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

// bytes returns the number of registered bytes.
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
	busy         error // if set, Close fails with it
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

// testMemory returns a memory on a fakePD. At the end of the test it closes the memory, and checks
// that no registration and no mapping is left.
func testMemory(t testing.TB, cfg MemoryConfig) (*memory, *fakePD) {
	t.Helper()
	notOnDevice(t, "the test uses no device")
	arenas, bytes := mem.Live()
	pd := newFakePD()
	m := must.Get(newMemory(pd, cfg))(t)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := m.Close(); err != nil {
			t.Errorf("closing the memory at the end of the test: %v, want no error", err)
		}
		if n := pd.count(); n != 0 {
			t.Errorf("%d registrations are left after the memory was closed, want none", n)
		}
		if a, b := mem.Live(); a != arenas || b != bytes {
			t.Errorf("%d arenas with %d bytes are left after the memory was closed, want none", a-arenas, b-bytes)
		}
		if s := m.Stats(); s.Mapped != 0 || s.Registered != 0 || s.InUse != 0 || s.Slabs != 0 || s.Regions != 0 {
			t.Errorf("after the memory was closed, Stats returns %+v, want zeros", s)
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
