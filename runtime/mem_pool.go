package runtime

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// Size classes are powers of two: at most half of a block is unused, and the
// class of a size is one instruction.
const (
	minClassBits = 6  // 64 B: a cache line, so that no two buffers share one
	maxClassBits = 20 // 1 MiB: above it mapping and registering cost less than the copy
	numClasses   = maxClassBits - minClassBits + 1

	// slabSize is what a pool grows by: one huge page of the common size, and
	// two blocks of the largest class.
	slabSize = 2 << 20
)

// MaxPooled is the largest buffer, in bytes, that comes from a pool. Larger ones
// are mapped and registered one by one.
const MaxPooled = 1 << maxClassBits

// classOf is the class of n bytes, 0 <= n <= MaxPooled.
func classOf(n int) int {
	return max(bits.Len(uint(max(n, 1)-1)), minClassBits) - minClassBits
}

// pool is the blocks of one size class. Getting and giving back are lock-free;
// slabs come and go under the memory's mutex (mem_pool_grow.go).
type pool struct {
	// slabs is the list of slabs, copied on write. Written under memory.mu;
	// read by Alloc. The store publishes the new slab's contents. A reader of
	// an old list may meet a slab that is gone: its free list is empty for ever.
	slabs atomic.Pointer[[]*slab]
	// hint is the slab that most recently had a block given or taken, so that
	// Alloc need not search full ones, and takes a warm block. Written by any
	// goroutine; only a guess, publishes nothing.
	hint atomic.Pointer[slab]
	node int // where new slabs are, counted from 1; 0: anywhere. Immutable
}

// slab is one mapping cut into equal blocks, with one registration. All fields
// are immutable but leases and free.
type slab struct {
	mapping
	pool   *pool
	iova   uint64 // what work requests call the first byte
	lkey   uint32
	size   int // of a block
	poison bool
	leases []lease        // one per block
	free   *ring.FreeList // of the blocks that nobody has
}

// list is the slabs there are now.
func (p *pool) list() []*slab {
	if l := p.slabs.Load(); l != nil {
		return *l
	}
	return nil
}

// get takes a free block, or reports false if there is none. It does not block
// or allocate.
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

// block is the memory of block i.
func (s *slab) block(i uint32) []byte {
	b, ok := s.arena.Slice(s.arena.Addr()+uint64(i)*uint64(s.size), s.size)
	if !ok {
		panic(fmt.Sprintf("runtime: block %d of %d bytes is outside its slab", i, s.size))
	}
	return b
}

// lend makes block i, which the caller took off the free list, a buffer of n
// bytes.
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

// returnCredits puts block i on the free list. Poison comes first: from Put on the
// block may belong to somebody else.
func (s *slab) giveBack(i uint32) {
	if s.poison {
		mem.Poison(s.block(i))
	}
	s.free.Put(i)
	if s.pool.hint.Load() != s {
		s.pool.hint.Store(s)
	}
}

// checkPoison panics if memory that nobody had was written to: a device or a
// goroutine used it after its lease ended, and whose data that was, or became,
// nobody can tell any more.
func checkPoison(what string, b []byte) {
	if off := mem.Poisoned(b); off >= 0 {
		panic(fmt.Sprintf("runtime: write after the lease ended: byte %d of a free %s block of %d bytes is 0x%02x, want 0x%02x",
			off, what, len(b), b[off], mem.PoisonByte))
	}
}
