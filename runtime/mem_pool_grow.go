package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// allocPooled allocates n bytes from the pool p. If p has no free block, allocPooled adds a slab (one mapping
// that is cut into blocks) to p. The argument class is the size class of p. The caller holds m.mu.
func (m *memory) allocPooled(p *pool, class, n int) (Buffer, error) {
	// Another goroutine may have grown the pool or released blocks meanwhile.
	if s, i, ok := p.get(); ok {
		return s.lend(i, n), nil
	}
	s, err := m.newSlab(p, 1<<(class+minClassBits))
	if err != nil {
		return Buffer{}, fmt.Errorf("runtime: buffer of %d bytes: %w", n, err)
	}
	i, _ := s.free.Get() // always succeeds, because no other goroutine has the slab yet
	list := append(append([]*slab(nil), p.list()...), s)
	p.slabs.Store(&list)
	p.hint.Store(s)
	return s.lend(i, n), nil
}

// newSlab maps and registers a slab for p. The blocks of the slab have size bytes each, and all are
// free. The caller holds m.mu, and then adds the slab to p.
func (m *memory) newSlab(p *pool, size int) (*slab, error) {
	at, err := m.mapRegistered(slabSize, p.node, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	n := slabSize / size
	s := &slab{
		pool: p, mapping: at, iova: at.mr.IOVA(), lkey: at.mr.LKey(), size: size,
		poison: m.cfg.PoisonFreed, leases: make([]lease, n), free: ring.NewFreeList(ring.NewLinks(n)),
	}
	for i := range s.leases {
		s.leases[i].home, s.leases[i].index, s.leases[i].memory = s, uint32(i), m
		s.leases[i].word.Store(leaseDying)
	}
	if s.poison {
		mem.Poison(at.arena.Bytes())
	}
	return s, nil
}

// inUse returns the number of blocks in use. If other goroutines allocate or release blocks
// meanwhile, the number is an estimate.
func (s *slab) inUse() (n int) {
	for i := range s.leases {
		if s.leases[i].inUse() {
			n++
		}
	}
	return n
}

// take claims a slab that has no block in use: it removes all blocks from the slab's free list and
// returns 0. The caller then owns the slab, because no other goroutine finds a free block in it. If
// blocks are in use, take returns their number, and all free blocks are on the free list again when
// take returns. The caller holds m.mu. So if a concurrent Alloc finds no free block because
// slab.take has removed the blocks, this Alloc waits in allocSlow until the caller releases m.mu.
func (s *slab) take() (missing int) {
	if n := s.inUse(); n > 0 {
		return n // do not remove the free blocks from the free list: a concurrent Alloc may need one
	}
	is := make([]uint32, 0, s.free.Cap())
	for {
		i, ok := s.free.Get()
		if !ok {
			break
		}
		is = append(is, i)
	}
	if missing = s.free.Cap() - len(is); missing > 0 {
		s.free.PutN(is)
	}
	return missing
}

// reclaim unmaps every slab that has no block in use, so that other size classes or registrations
// can use the memory. It reports whether a slab was unmapped, and returns the number of blocks that
// are in use. The caller holds m.mu.
func (m *memory) reclaim() (freed bool, out int, err error) {
	var errs []error
	for p := range m.allPools() {
		var keep []*slab
		for _, s := range p.list() {
			if n := s.take(); n > 0 {
				out += n
				keep = append(keep, s)
				continue
			}
			if s.poison {
				for i := range s.leases {
					checkPoison("buffer", s.block(uint32(i)))
				}
			}
			if err := m.discard(s.mapping); err != nil {
				errs = append(errs, err)
				continue
			}
			freed = true
		}
		if len(keep) != len(p.list()) {
			p.slabs.Store(&keep)
			p.hint.Store(nil)
		}
	}
	return freed, out, errors.Join(errs...)
}
