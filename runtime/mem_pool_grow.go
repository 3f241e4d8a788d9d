package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// allocSlow adds a slab to the pool p, whose size class is the argument class, and
// allocates n bytes from it. It blocks on the memory's mutex and enters the kernel.
func (m *memory) allocSlow(p *pool, class, n int) (Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing.Load() {
		return Buffer{}, errMemoryClosed
	}
	// Another goroutine may have grown the pool or released blocks in the meantime.
	if s, i, ok := p.get(); ok {
		return s.lend(i, n), nil
	}
	s, err := m.newSlab(p, 1<<(class+minClassBits))
	if err != nil {
		return Buffer{}, fmt.Errorf("runtime: buffer of %d bytes: %w", n, err)
	}
	i, _ := s.free.Get() // cannot fail: the slab is not published yet
	list := append(append([]*slab(nil), p.list()...), s)
	p.slabs.Store(&list)
	p.hint.Store(s)
	return s.lend(i, n), nil
}

// newSlab maps and registers a slab of blocks of size bytes, all free.
// The caller publishes it. Under m.mu.
func (m *memory) newSlab(p *pool, size int) (*slab, error) {
	at, err := m.mapRegistered(slabSize, p.node, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	n := slabSize / size
	s := &slab{
		pool: p, mapping: at, iova: at.mr.IOVA(), lkey: at.mr.LKey(), size: size,
		poison: m.cfg.PoisonFreed, leases: make([]lease, n), free: ring.NewFreeList(n),
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

// inUse counts the blocks in use. While blocks are allocated and released it is an estimate.
func (s *slab) inUse() (n int) {
	for i := range s.leases {
		if s.leases[i].inUse() {
			n++
		}
	}
	return n
}

// take takes all blocks off the slab's free list. If none is missing, the caller then
// owns the slab: lock-free users find no block in it. Otherwise take puts the blocks back
// and returns how many are missing. An Alloc that meanwhile finds no free block waits
// for m.mu, which the caller holds.
func (s *slab) take() (missing int) {
	if n := s.inUse(); n > 0 {
		return n // do not take blocks in vain: an Alloc would find none
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

// reclaim unmaps every unused slab, so that other classes or registrations get its
// memory. It also returns how many blocks of the remaining slabs are in use. Under m.mu.
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
