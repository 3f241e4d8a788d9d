package runtime

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// Size classes are powers of two. So a few instructions compute the class of a size, and a buffer
// uses more than half of its block, except in the smallest class.
const (
	minClassBits = 6  // 64 B: a cache line, so that no two buffers share a cache line
	maxClassBits = 20 // 1 MiB: for a larger buffer, mapping and registering cost less than copying the bytes
	numClasses   = maxClassBits - minClassBits + 1

	// slabSize is the number of bytes by which a pool grows. It is the usual size of a huge page,
	// and holds two blocks of the largest class.
	slabSize = 2 << 20
)

// MaxPooled is the largest buffer, in bytes, that comes from a pool. Larger buffers are mapped and
// registered one by one.
const MaxPooled = 1 << maxClassBits

// classOf returns the size class of n bytes, 0 <= n <= MaxPooled.
func classOf(n int) int {
	return max(bits.Len(uint(max(n, 1)-1)), minClassBits) - minClassBits
}

// pool holds the blocks of one size class, in slabs. Blocks are allocated and freed without a lock.
// Slabs are added and removed while memory.mu is locked (mem_pool_grow.go).
type pool struct {
	// slabs is the list of slabs, which never changes: to add or remove a slab, a goroutine that
	// holds memory.mu stores a pointer to a new list. Alloc reads the list without a lock. If Alloc
	// has read an old list, it may find a slab that is already unmapped. It gets no block from this
	// slab, because the free list of an unmapped slab is empty.
	slabs atomic.Pointer[[]*slab]
	// hint is the slab of the most recent allocation or release. Alloc tries hint first, because
	// this slab probably has a free block whose memory is in the CPU cache. Any goroutine may write
	// hint. The pointer publishes no other memory.
	hint atomic.Pointer[slab]
	// growing is set while a goroutine adds a slab for allocFor. Any goroutine may write it. It publishes
	// nothing.
	growing atomic.Bool
	node    int // number of the NUMA node of new slabs, plus 1; 0 means any node. Immutable after poolSet.place
}

// slab is one mapping that is cut into equal blocks. It has one registration. All fields except
// leases and free are immutable.
type slab struct {
	mapping
	pool   *pool
	iova   uint64 // address of the first byte, for work requests
	lkey   uint32
	size   int // bytes per block
	poison bool
	leases []lease        // one per block
	free   *ring.FreeList // the free blocks
}

// list returns the current slabs.
func (p *pool) list() []*slab {
	if l := p.slabs.Load(); l != nil {
		return *l
	}
	return nil
}

// get takes a free block, and returns its slab and its index in the slab. If no block is
// free, get returns false. It does not wait or allocate.
func (p *pool) get() (*slab, uint32, bool) {
	hint := p.hint.Load()
	if hint != nil {
		if i, ok := hint.free.Get(); ok {
			return hint, i, true
		}
	}
	for _, s := range p.list() {
		if s == hint {
			continue
		}
		if i, ok := s.free.Get(); ok {
			p.hint.Store(s)
			return s, i, true
		}
	}
	return nil, 0, false
}

// block returns the memory of block i.
func (s *slab) block(i uint32) []byte {
	b, ok := s.arena.Slice(s.arena.Addr()+uint64(i)*uint64(s.size), s.size)
	if !ok {
		panic(fmt.Sprintf("runtime: block %d of %d bytes is outside its slab", i, s.size))
	}
	return b
}

// lend leases block i as a buffer of n bytes. The caller has taken the block from the
// free list.
func (s *slab) lend(i uint32, n int) Buffer {
	b, l := s.block(i), &s.leases[i]
	if s.poison {
		checkPoison("buffer", b)
	}
	return Buffer{Slice{
		addr: s.iova + uint64(i)*uint64(s.size), lkey: s.lkey, access: verbs.AccessLocalWrite,
		lease: l, gen: l.open(), b: b[:n:n],
	}}
}

// giveBack implements leaseHome. It puts block i on the free list, from which another goroutine may
// take the block at once. So if s.poison is set, giveBack first overwrites the block with the
// pattern of MemoryConfig.PoisonFreed.
func (s *slab) giveBack(i uint32) {
	if s.poison {
		mem.Poison(s.block(i))
	}
	s.free.Put(i)
	if s.pool.hint.Load() != s {
		s.pool.hint.Store(s)
	}
}

// registration implements leaseHome.
func (s *slab) registration() verbs.MR { return s.mr }

// checkPoison panics if the bytes b of a free block are not the pattern of
// MemoryConfig.PoisonFreed. Then a device or a goroutine has written to the block after the block's
// lease ended. The first argument is the kind of the block, for the text of the panic.
func checkPoison(what string, b []byte) {
	if off := mem.Poisoned(b); off >= 0 {
		panic(fmt.Sprintf("runtime: write after the lease ended: byte %d of a free %s block of %d bytes is 0x%02x, want 0x%02x",
			off, what, len(b), b[off], mem.PoisonByte))
	}
}
