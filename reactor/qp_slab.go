package reactor

import (
	"errors"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// slab holds the off-heap memory of the requests of many queues, those with equal slabKeys. It maps and
// registers the memory in arenas, which are cut into blocks:
//
//	┌─────────┬─────────┬───┬───────────────────┬───┐
//	│ block 0 │ block 1 │...│ device's, block 0 │...│
//	└─────────┴─────────┴───┴───────────────────┴───┘
//	 lengths, elements,      results, inline bytes:
//	 requests                registered
//
// The processor copies requests and elements to the device when it posts, so the device accesses only results
// and inline bytes. Only these are registered, because a device locks registered memory. Queues share the
// registrations, because each registration enters the kernel.
//
// An arena without a used block is unmapped at once: the owner of a protection domain may close it when the
// last queue has gone.
type slab struct {
	key  slabKey
	node int

	queues int // the number of queues; guarded by Reactor.slabMu

	// mu guards the fields below, and arena.used. It is held for a few instructions, and not while a goroutine enters
	// the kernel: the holder of the turn takes blocks, too.
	mu      sync.Mutex
	blocks  int // the number of blocks
	growing int // goroutines that map an arena
	free    []*block
}

// slabKey says which queues share a slab.
type slabKey struct {
	pd             verbs.PD
	maxSGE, inline int  // elements, and inline bytes, of a request
	sends          bool // there are sends: only these have results and inline bytes
}

// arena is a mapping of a slab, with its registration.
type arena struct {
	memory *mem.Arena
	mr     verbs.MR // nil without sends
	used   int      // the number of used blocks
}

// block is the off-heap memory of a chunk.
type block struct {
	arena       *arena
	requests    *[chunkSlots]verbs.SendWR // nil without sends
	receives    *[chunkSlots]verbs.RecvWR // the same memory as requests: a chunk has either sends or receives
	sges        []verbs.SGE
	bytes       *[chunkSlots]uint32
	results     *[chunkSlots]uint64 // nil without sends
	inline      []byte
	requestAddr uint64
	resultAddr  uint64
	inlineAddr  uint64
	lkey        uint32
}

const (
	// minBlocks is the number of blocks of the first arena of a slab. Each further arena has as many as there
	// are, up to maxBlocks, and at most maxArena bytes, but at least one block.
	minBlocks = 16
	maxBlocks = 256
	maxArena  = 1 << 20
	// cacheLine is the alignment of the parts of a block, in bytes. It is a multiple of the size of a
	// cache line (64 bytes, on some processors 128), so blocks of different queues share no cache line. No
	// work request crosses a multiple of cacheLine.
	cacheLine = 128
)

func aligned(n int) int { return (n + cacheLine - 1) &^ (cacheLine - 1) }

// hostSize and deviceSize return the bytes of a block's two parts.
func (k *slabKey) hostSize() int {
	if !k.sends {
		return k.requestsAt() + chunkSlots*verbs.SizeofRecvWR
	}
	return k.requestsAt() + chunkSlots*verbs.SizeofSendWR
}

// requestsAt is the offset of the requests of a block, which lie immediately behind the elements.
func (k *slabKey) requestsAt() int {
	return aligned(chunkSlots*4 + chunkSlots*k.maxSGE*verbs.SizeofSGE)
}

func (k *slabKey) deviceSize() int {
	if !k.sends {
		return 0
	}
	return aligned(chunkSlots * (wordSize + k.inline))
}

// joinSlab returns the slab for a queue. The caller must call leaveSlab. Any goroutine may call it.
func (r *Reactor) joinSlab(k slabKey) *slab {
	r.slabMu.Lock()
	defer r.slabMu.Unlock()
	s := r.slabs[k]
	if s == nil {
		s = &slab{key: k, node: r.cfg.Node}
		if r.slabs == nil {
			r.slabs = map[slabKey]*slab{}
		}
		r.slabs[k] = s
	}
	s.queues++
	return s
}

// leaveSlab undoes joinSlab. The queue has given its blocks back.
func (r *Reactor) leaveSlab(s *slab) {
	r.slabMu.Lock()
	defer r.slabMu.Unlock()
	if s.queues--; s.queues == 0 {
		delete(r.slabs, s.key)
	}
}

// take returns a free block. If there is none, it maps and registers more, and does not wait for another goroutine that
// does. Any goroutine may call it.
func (s *slab) take() (*block, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		if err := s.grow(); err != nil && len(s.free) == 0 {
			return nil, err
		}
	}
	n := len(s.free) - 1
	b := s.free[n]
	s.free = s.free[:n]
	b.arena.used++
	return b, nil
}

// give takes back a block. It may block and enter the kernel. If the device refuses to give an arena back, give
// returns the error, and the block still counts as used.
func (s *slab) give(b *block) error {
	if !s.last(b) {
		return nil
	}
	if err := b.arena.close(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks--
	return nil
}

// last takes back a block, or reports that it is the last used one of its arena, whose free blocks are then not given
// out any more: the caller closes the arena.
func (s *slab) last(b *block) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := b.arena
	if a.used > 1 {
		a.used--
		s.free = append(s.free, b)
		return false
	}
	n := len(s.free)
	s.free = slices.DeleteFunc(s.free, func(f *block) bool { return f.arena == a })
	s.blocks -= n - len(s.free)
	return true
}

// close gives the memory back. The device may refuse that; the caller may then try again.
func (a *arena) close() error {
	if a.mr != nil {
		if err := a.mr.Close(); err != nil {
			return err
		}
		a.mr = nil
	}
	return a.memory.Unmap()
}

// grow adds an arena. If there is no memory for so large a one, it tries with half as many blocks. A goroutine that comes
// while another one grows the slab adds a small arena. The caller holds s.mu, which grow unlocks meanwhile.
func (s *slab) grow() error {
	n := min(max(s.blocks, minBlocks), maxBlocks, max(maxArena/(s.key.hostSize()+s.key.deviceSize()), 1))
	if s.growing > 0 {
		n = min(n, minBlocks)
	}
	s.growing++
	s.mu.Unlock()
	var more []*block
	var err error
	for ; n > 0; n /= 2 {
		if more, err = s.arena(n); err == nil {
			break
		}
	}
	s.mu.Lock()
	s.growing--
	s.free = append(s.free, more...) // at the end: the caller takes one of them, so the arena has a used block
	s.blocks += len(more)
	return err
}

// arena maps and registers n blocks, and returns them, the first one last. It enters the kernel.
func (s *slab) arena(n int) ([]*block, error) {
	host, device := s.key.hostSize(), s.key.deviceSize()
	m, err := mem.Map(n*(host+device), mem.Options{Node: s.node})
	if err != nil {
		return nil, err
	}
	a := &arena{memory: m}
	deviceAt := m.Addr() + uint64(n*host)
	lkey := uint32(0)
	if device > 0 {
		if a.mr, err = s.key.pd.RegMR(deviceAt, uint64(n*device), deviceAt, verbs.AccessLocalWrite); err != nil {
			return nil, errors.Join(err, m.Unmap())
		}
		lkey = a.mr.LKey()
	}
	blocks, free := make([]block, n), make([]*block, 0, n)
	for i := n - 1; i >= 0; i-- { // so that take returns the first block first
		b := &blocks[i]
		*b = block{arena: a, lkey: lkey}
		b.cut(&s.key, m.Addr()+uint64(i*host), deviceAt+uint64(i*device))
		free = append(free, b)
	}
	return free, nil
}

// cut makes the views of a block, whose parts lie at the addresses host and device.
func (b *block) cut(k *slabKey, host, device uint64) {
	m := b.arena.memory
	b.requestAddr = host + uint64(k.requestsAt())
	b.receives = view[[chunkSlots]verbs.RecvWR](m, b.requestAddr)
	sges := chunkSlots * k.maxSGE
	var ok bool
	if b.sges, ok = mem.Array[verbs.SGE](m, b.requestAddr-uint64(sges)*verbs.SizeofSGE, sges); !ok {
		panic(errArena)
	}
	b.bytes = view[[chunkSlots]uint32](m, host)
	if k.sends {
		b.requests = view[[chunkSlots]verbs.SendWR](m, b.requestAddr)
		b.resultAddr, b.inlineAddr = device, device+chunkSlots*wordSize
		b.results = view[[chunkSlots]uint64](m, b.resultAddr)
		if b.inline, ok = m.Slice(b.inlineAddr, chunkSlots*k.inline); !ok {
			panic(errArena)
		}
	}
}

var errArena = errors.New("reactor: an arena is smaller than its blocks")

func view[T any](m *mem.Arena, addr uint64) *T {
	p, ok := mem.At[T](m, addr)
	if !ok {
		panic(errArena)
	}
	return p
}
