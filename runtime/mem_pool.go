package runtime

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// Size classes are powers of two. So the class of a size takes one instruction to compute, and
// less than half of a block is unused, except in the smallest class.
const (
	minClassBits = 6  // 64 B: a cache line, so that no two buffers share one
	maxClassBits = 20 // 1 MiB: to map and register a larger buffer costs less than to copy it
	numClasses   = maxClassBits - minClassBits + 1

	// slabSize is by how many bytes a pool grows: one huge page of the usual
	// size, or two blocks of the largest class.
	slabSize = 2 << 20
)

// MaxPooled is the largest buffer, in bytes, that comes from a pool.
// Larger ones are mapped and registered one by one.
const MaxPooled = 1 << maxClassBits

// classOf returns the size class of n bytes, 0 <= n <= MaxPooled.
func classOf(n int) int {
	return max(bits.Len(uint(max(n, 1)-1)), minClassBits) - minClassBits
}

// pool holds the blocks of one size class. Allocating and freeing blocks are
// lock-free; slabs are added and removed under the memory's mutex (mem_pool_grow.go).
type pool struct {
	// slabs is the list of slabs, copied on write. Written under memory.mu; read by Alloc. The
	// store publishes the new slab's contents. A reader of an old list may still find a slab
	// that was unmapped; it gets no block, because the slab's free list stays empty.
	slabs atomic.Pointer[[]*slab]
	// hint is the slab of the most recent allocation or release. Alloc tries it first: it
	// probably has a free block that is in the CPU cache. Written by any goroutine; it
	// publishes nothing.
	hint atomic.Pointer[slab]
	node int // NUMA node of new slabs, counted from 1; 0: anywhere. Immutable
}

// slab is one mapping cut into equal blocks, with one registration. All
// fields except leases and free are immutable.
type slab struct {
	mapping
	pool   *pool
	iova   uint64 // address of the first byte in work requests
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

// get takes a free block, or returns false if there is none. It does not block or allocate.
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

// lend leases block i as a buffer of n bytes. The caller has taken the block off the free list.
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

// giveBack puts block i on the free list. It poisons the block before that, because afterwards
// the block may have a new owner.
func (s *slab) giveBack(i uint32) {
	if s.poison {
		mem.Poison(s.block(i))
	}
	s.free.Put(i)
	if s.pool.hint.Load() != s {
		s.pool.hint.Store(s)
	}
}

// checkPoison panics if a free block was written to. A device or a goroutine has then written to
// the block after its lease ended.
func checkPoison(what string, b []byte) {
	if off := mem.Poisoned(b); off >= 0 {
		panic(fmt.Sprintf("runtime: write after the lease ended: byte %d of a free %s block of %d bytes is 0x%02x, want 0x%02x",
			off, what, len(b), b[off], mem.PoisonByte))
	}
}
