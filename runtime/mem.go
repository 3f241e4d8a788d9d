package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/regcache"
	"github.com/verbena-rdma/verbena/verbs"
)

// errMemoryClosed is the error of a request for memory after memory.Close has begun.
var errMemoryClosed = fmt.Errorf("%w: the memory of the runtime", ErrClosed)

// memory is the registered memory of one protection domain: pools of buffers, regions, and the cache
// of registrations of caller-owned memory. All this memory is outside the Go heap.
//
// Any goroutine may call the methods. If a pool has a free block of the requested size class, Alloc,
// allocUntil and allocOnNode do not block. In all other cases these methods lock mu and may enter the
// kernel (allocSlow). The other methods lock mu, or require that the caller holds mu, and may enter the kernel.
// During the registration of memory, mu stays locked until the device has pinned the pages. So the
// holder of a reactor's turn never locks mu (Runtime.allocFor), and what waits for a disk is done
// before mu is locked (NewFileRegion).
type memory struct {
	pd  verbs.PD
	cfg MemoryConfig
	// windows is set before the first use, if the device has the windows that large messages need.
	windows bool
	// windowMost is the most bytes of a window; 0: all of its region. It is set at the same time.
	windowMost uint64
	// flushes is set before the first use, if the device executes FLUSH.
	flushes bool
	// stepped is set before the first use, if the memory must start no goroutines. Then calls enter the kernel
	// themselves, and a later call unmaps big buffers whose lease has ended.
	stepped bool
	// mapFile is mem.MapFile. Tests replace the function before its first use. After that the field does
	// not change.
	mapFile func(path string, size int) (*mem.Arena, error)
	// memlock returns the process's limit on locked memory (mem.MemlockLimit). Tests replace the
	// function before its first use. After that the field does not change.
	memlock func() (uint64, bool)

	pools poolSet // used by Alloc
	// nodePools maps a NUMA node to the pools for the receive buffers of the node's reactors.
	// Immutable; nil if the configuration puts all memory on one node.
	nodePools map[int]*poolSet
	// dead holds the big buffers whose lease has ended, until reapLocked unmaps them. Any goroutine may
	// push a buffer; only a goroutine that holds mu takes buffers.
	dead ring.Inbox[bigBuffer, *bigBuffer]
	// reaping is set while a goroutine is about to empty dead (reap). Who sets it starts the goroutine, which
	// clears it. It publishes nothing.
	reaping atomic.Bool
	// Close sets closing while it holds mu, and then empties the free lists. A concurrent Alloc may
	// have read closing before that. If this Alloc takes a block, Close counts the block as in use
	// and returns ErrBusy. If this Alloc finds no free block, it calls allocSlow, which locks mu
	// and reads closing again.
	closing atomic.Bool

	mu         memLock // guards the fields below
	mapped     int64   // bytes of all arenas mapped by the runtime
	registered uint64  // bytes of all registrations that lock memory
	bigs       int     // number of big buffers that are not unmapped yet
	bigBytes   int64   // mapped bytes of the big buffers
	regions    map[*Region]struct{}
	cache      regcache.Cache
	broken     []mapping // mappings that the device refused to deregister; Close tries again
	closed     bool
}

// newMemory returns the memory of a protection domain, with additional pools on the given NUMA
// nodes. The elements of nodes are node numbers plus one; elements that are 0 are ignored.
// newMemory maps nothing yet. The caller closes the memory before it closes the protection domain.
// Errors: [ErrConfig].
func newMemory(pd verbs.PD, cfg MemoryConfig, nodes ...int) (*memory, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	m := &memory{mu: newMemLock(), pd: pd, cfg: cfg, mapFile: mem.MapFile, memlock: mem.MemlockLimit, regions: map[*Region]struct{}{}, nodePools: newNodePools(cfg, nodes)}
	m.cache.Register, m.cache.Keep = m.register, cfg.CacheEntries
	m.cache.Deregistered = func(n uint64, access verbs.AccessFlags) { m.registered -= locks(n, access) }
	m.pools.place(cfg.Node)
	return m, nil
}

// Alloc implements [Runtime.Alloc].
func (m *memory) Alloc(n int) (Buffer, error) { return m.allocUntil(nil, n) }

// allocUntil is Alloc that waits only until asked ends. A nil asked never ends.
func (m *memory) allocUntil(asked reactor.DoneContext, n int) (Buffer, error) {
	switch {
	case n < 0:
		return Buffer{}, &RangeError{What: "buffer", N: uint64(n), signed: true}
	case m.closing.Load():
		return Buffer{}, errMemoryClosed
	case n > MaxPooled:
		return m.allocSlow(asked, nil, n)
	}
	p := &m.pools[classOf(n)]
	if s, i, ok := p.get(); ok {
		return s.lend(i, n), nil
	}
	return m.allocSlow(asked, p, n)
}

// tryAlloc is Alloc if a pool has a free block. It does not block.
func (m *memory) tryAlloc(n int) (b Buffer, ok bool) {
	if n > MaxPooled || m.closing.Load() {
		return b, false
	}
	s, i, ok := m.pools[classOf(n)].get()
	if ok {
		b = s.lend(i, n)
	}
	return b, ok
}

// Close closes all regions and returns all memory to the system. After that the bytes of buffers
// and regions must not be used. If buffers are leased or operations are in flight, Close releases
// only the unused memory, and returns an error that wraps [ErrBusy]; a later Close releases the
// rest. After the first call of Close, all methods that allocate or register memory fail. Close is
// idempotent. It enters the kernel and waits for mu and, as [Region.Close], for FLUSHes that are being written, but for
// no other operation.
//
// Implements: ibv_dereg_mr.
func (m *memory) Close() error {
	m.mu.Lock()
	m.closing.Store(true)
	regions := slices.Collect(maps.Keys(m.regions)) // no more are added
	m.mu.Unlock()
	var errs []error
	for _, r := range regions {
		errs = append(errs, r.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
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

// MemoryStats is a snapshot of a memory's counters.
type MemoryStats struct {
	Mapped      int64  // bytes mapped by the runtime: slabs, big buffers, regions
	Registered  uint64 // registered and locked bytes of the runtime and of the caller, including cached registrations
	InUse       int64  // bytes of leased buffers, and of released buffers that operations still use
	Slabs       int    // slabs of 2 MiB
	Buffers     int    // leased buffers, and released buffers that operations still use
	Receives    int    // buffers that connections share to receive messages (Options.RecvCredits); part of Buffers
	Regions     int    // open regions
	CacheHits   uint64 // calls of Register that shared a cached registration
	CacheMisses uint64 // calls of Register, without remote access, that found no cached registration to share
	CacheIdle   int    // cached registrations that no region uses
}

// Stats implements [Runtime.MemoryStats].
func (m *memory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.reapLocked() // if this fails, Close tries again
	s := MemoryStats{
		Mapped: m.mapped, Registered: m.registered, Regions: len(m.regions),
	}
	s.CacheHits, s.CacheMisses, s.CacheIdle = m.cache.Stats()
	for p := range m.allPools() {
		for _, sl := range p.list() {
			out := sl.inUse()
			s.Slabs++
			s.Buffers += out
			s.InUse += int64(out) * int64(sl.size)
		}
	}
	s.Buffers += m.bigs
	s.InUse += m.bigBytes
	return s
}
