package runtime

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/runtime/internal/regcache"
	"github.com/verbena-rdma/verbena/verbs"
)

// errMemoryClosed is what a closing memory answers to whoever wants more of it.
var errMemoryClosed = fmt.Errorf("%w: its memory", ErrClosed)

// memory is the registered memory of one protection domain: pools of buffers,
// regions, and the cache of registrations of caller-owned memory. All of it is
// off the Go heap.
//
// Methods may be called from any goroutine. [Runtime.Alloc] of a pooled size does
// not block once the pools have grown; the others, and growing, wait for one
// mutex and enter the kernel, and a registration under it takes as long as the
// device needs to pin the pages.
type memory struct {
	pd  verbs.PD
	cfg MemoryConfig
	// memlock tells the process's limit; a field for tests. Immutable.
	memlock func() (uint64, bool)

	pools poolSet // of Alloc
	// near are pools on the nodes that have reactors, by node, for what a reactor's
	// connections receive into. Immutable, nil where there is nothing to bind to.
	near map[int]*poolSet
	// dead has the big buffers whose lease is over. Pushed by anybody, taken
	// under mu.
	dead ring.Inbox[bigBuffer, *bigBuffer]
	// closing is set by Close, under mu, and read by Alloc. Blocks on the free
	// lists are checked again by Close after it is set, so it orders nothing.
	closing atomic.Bool

	mu         sync.Mutex // guards what follows
	mapped     int64      // bytes of all arenas of ours
	registered uint64     // bytes of all registrations that lock memory
	bigs       int        // big buffers out or dead
	bigBytes   int64      // that they map
	regions    map[*Region]struct{}
	cache      regcache.Cache
	broken     []mapping // could not be ended; tried again by Close
	closed     bool
}

// newMemory makes the memory of a protection domain, with pools on nodes (counted
// from 1) besides. It maps nothing yet. The caller closes it before the domain.
// Errors: [ErrConfig].
func newMemory(pd verbs.PD, cfg MemoryConfig, nodes ...int) (*memory, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	m := &memory{pd: pd, cfg: cfg, memlock: mem.MemlockLimit, regions: map[*Region]struct{}{}, near: nearPools(cfg, nodes)}
	m.cache.Register, m.cache.Keep = m.register, cfg.CacheEntries
	m.cache.Deregistered = func(n uint64, access verbs.AccessFlags) { m.registered -= locks(n, access) }
	m.pools.place(cfg.Node)
	return m, nil
}

// Alloc is [Runtime.Alloc].
func (m *memory) Alloc(n int) (Buffer, error) {
	switch {
	case n < 0:
		return Buffer{}, &RangeError{What: "buffer", N: uint64(n), signed: true}
	case m.closing.Load():
		return Buffer{}, errMemoryClosed
	case n > MaxPooled:
		return m.allocBig(n)
	}
	class := classOf(n)
	if s, i, ok := m.pools[class].get(); ok {
		return s.lend(i, n), nil
	}
	return m.allocSlow(&m.pools[class], class, n)
}

// Close closes all regions and gives everything back to the system. Views of
// the memory are invalid afterwards. It fails with an error that wraps
// [ErrBusy] while buffers are out or operations are in flight; then what
// is unused is gone already, nothing new is given out, and a later Close goes
// on. It is idempotent. It enters the kernel and waits for the mutex, never for
// an operation.
//
// Implements: ibv_dereg_mr.
func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closing.Store(true)
	var errs []error
	for r := range m.regions {
		errs = append(errs, r.closeLocked())
	}
	errs = append(errs, m.cache.Trim(0), m.reapLocked(), m.retryBroken())
	_, out, err := m.reclaim()
	errs = append(errs, err)
	if out += m.bigs; out > 0 {
		errs = append(errs, fmt.Errorf("%w: %d buffers were not released", verbs.ErrBusy, out))
	}
	err = errors.Join(errs...)
	m.closed = err == nil
	return err
}

// MemoryStats is what a memory has, at one moment.
type MemoryStats struct {
	Mapped      int64  // bytes mapped by us: slabs, big buffers, regions
	Registered  uint64 // bytes registered and locked, ours and the caller's, cached ones included
	InUse       int64  // bytes of the blocks and big buffers that are out
	Slabs       int    // of 2 MiB
	Buffers     int    // that are out
	Regions     int    // that are open
	CacheHits   uint64 // registrations that were shared
	CacheMisses uint64 // registrations that the device had to make
	CacheIdle   int    // registrations that nobody uses now
}

// Stats is [Runtime.MemoryStats].
func (m *memory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.reapLocked() // a failure is kept and reported by Close
	s := MemoryStats{
		Mapped: m.mapped, Registered: m.registered, Regions: len(m.regions),
	}
	s.CacheHits, s.CacheMisses, s.CacheIdle = m.cache.Stats()
	for p := range m.allPools() {
		for _, sl := range p.list() {
			out := sl.outs()
			s.Slabs++
			s.Buffers += out
			s.InUse += int64(out) * int64(sl.size)
		}
	}
	s.Buffers += m.bigs
	s.InUse += m.bigBytes
	return s
}
