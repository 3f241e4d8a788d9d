package runtime

import (
	"container/list"
	"errors"
	"fmt"
	"sort"
	"sync"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// adopting makes adopting a range and registering it one step in the process. A
// provider pins the smallest arena that holds the range, the newest of equal
// ones, which must be the one adopted for this registration: else one of two
// memories could not forget its arena while the other's registration lives.
var adopting sync.Mutex

// registration is one registration of caller-owned memory.
//
//	         acquire (shared: a hit)
//	            +------+
//	            v      |      release of the last
//	add ---> used(refs > 0) ----------------------> idle --+--> dropped
//	            |      ^                             |     |    (evicted,
//	 invalidate |      +----------- a hit -----------+     |    invalidated)
//	            v                                          |
//	         doomed(refs > 0) ---- release of the last ----+
//
// A doomed one is not shared any more.
type registration struct {
	addr, end uint64
	reach     uint64 // largest end of this and all earlier ones in the index
	access    verbs.AccessFlags
	arena     *mem.Arena // adopted
	mr        verbs.MR
	refs      int
	doomed    bool
	idle      *list.Element // in regCache.idle while refs is 0
}

// regCache is the registrations of caller-owned memory. The memory's mutex
// guards it.
type regCache struct {
	index        []*registration // by addr
	idle         list.List       // of *registration, most recently used first
	hits, misses uint64
}

// remoteAccess are the bits that open memory to peers.
const remoteAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessFlushGlobal | verbs.AccessFlushPersistent

// serves tells whether r can stand for a registration of [addr, end) with the
// access asked for. It may cover more and let the device write here although
// that was not asked for, as long as peers gain nothing: a key that opens memory
// to peers opens exactly the range and the permissions that its holder was
// meant to have.
func (r *registration) serves(addr, end uint64, access verbs.AccessFlags) bool {
	if r.doomed || r.addr > addr || r.end < end || access&^r.access != 0 || r.access&^access&^verbs.AccessLocalWrite != 0 {
		return false
	}
	return r.access&remoteAccess == 0 || r.addr == addr && r.end == end
}

// after is the index of the first registration that begins above addr.
func (c *regCache) after(addr uint64) int {
	return sort.Search(len(c.index), func(i int) bool { return c.index[i].addr > addr })
}

func (c *regCache) find(addr, end uint64, access verbs.AccessFlags) *registration {
	for i := c.after(addr) - 1; i >= 0 && c.index[i].reach >= end; i-- {
		if c.index[i].serves(addr, end, access) {
			return c.index[i]
		}
	}
	return nil
}

// reindex computes reach from index i on.
func (c *regCache) reindex(i int) {
	var reach uint64
	if i > 0 {
		reach = c.index[i-1].reach
	}
	for ; i < len(c.index); i++ {
		reach = max(reach, c.index[i].end)
		c.index[i].reach = reach
	}
}

// ours tells whether [addr, end), not empty, begins or ends in memory that this
// library mapped.
func ours(addr, end uint64) bool {
	for _, at := range [...]uint64{addr, end - 1} {
		if a, ok := mem.Find(at, 1); ok && a.Owned() {
			return true
		}
	}
	return false
}

// acquire gives a registration of b, shared if there is one that serves, and
// counts its user.
func (c *regCache) acquire(m *Memory, b []byte, access verbs.AccessFlags) (*registration, error) {
	addr, end := span(b)
	if r := c.find(addr, end, access); r != nil {
		c.hits++
		if r.idle != nil {
			c.idle.Remove(r.idle)
			r.idle = nil
		}
		r.refs++
		return r, nil
	}
	c.misses++
	if ours(addr, end) {
		return nil, &OwnMemoryError{Addr: addr, Len: end - addr}
	}
	adopting.Lock()
	defer adopting.Unlock()
	arena, err := mem.Adopt(b)
	if err != nil {
		if errors.Is(err, mem.ErrGoHeap) {
			err = fmt.Errorf("%w; a device may only have memory that never moves and is never collected: "+
				"use Alloc or NewRegion, or map it yourself (mmap)", err)
		}
		return nil, err
	}
	mr, err := m.register(addr, end-addr, access)
	if err != nil {
		return nil, errors.Join(err, arena.Unmap())
	}
	r := &registration{addr: addr, end: end, access: access, arena: arena, mr: mr, refs: 1}
	i := c.after(addr)
	c.index = append(c.index, nil)
	copy(c.index[i+1:], c.index[i:])
	c.index[i] = r
	c.reindex(i)
	return r, nil
}

// release ends one use. What the cache has no room for goes, the least recently
// used first. A registration that cannot be ended stays, doomed, and is tried
// again by Close.
func (c *regCache) release(m *Memory, r *registration) {
	if r.refs--; r.refs > 0 {
		return
	}
	r.idle = c.idle.PushFront(r)
	if r.doomed {
		_ = c.drop(m, r)
	}
	_ = c.trim(m, m.cfg.CacheEntries)
}

// trim drops idle registrations until at most keep are left.
func (c *regCache) trim(m *Memory, keep int) error {
	var errs []error
	for n := c.idle.Len() - keep; n > 0; n-- {
		errs = append(errs, c.drop(m, c.idle.Back().Value.(*registration)))
	}
	return errors.Join(errs...)
}

// drop ends an idle registration. If the device refuses, it stays idle, at the
// front and doomed.
func (c *regCache) drop(m *Memory, r *registration) error {
	n := r.end - r.addr
	if err := r.mr.Close(); err != nil {
		r.doomed = true
		c.idle.MoveToFront(r.idle)
		return fmt.Errorf("runtime: deregistering %d bytes at 0x%x: %w", n, r.addr, err)
	}
	m.registered -= locks(n, r.access)
	c.idle.Remove(r.idle)
	r.idle = nil
	for i := c.after(r.addr) - 1; i >= 0; i-- {
		if c.index[i] == r {
			c.index = append(c.index[:i], c.index[i+1:]...)
			c.reindex(i)
			break
		}
	}
	return r.arena.Unmap() // only forgets: the mapping is the caller's
}

// invalidate drops what overlaps [addr, end) and is idle, and dooms the rest.
func (c *regCache) invalidate(m *Memory, addr, end uint64) error {
	var errs []error
	busy := 0
	// From the end, so that dropping moves only what was looked at.
	for i := c.after(end-1) - 1; i >= 0 && c.index[i].reach > addr; i-- {
		r := c.index[i]
		switch {
		case r.end <= addr:
		case r.refs > 0:
			r.doomed = true
			busy++
		default:
			errs = append(errs, c.drop(m, r))
		}
	}
	if busy > 0 {
		errs = append(errs, fmt.Errorf("%w: %d registrations overlap %d bytes at 0x%x; close their regions first", verbs.ErrBusy, busy, end-addr, addr))
	}
	return errors.Join(errs...)
}
