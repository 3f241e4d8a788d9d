package regcache

import (
	"container/list"
	"errors"
	"fmt"
	"reflect"
	"sort"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// ErrOwn is the error of [Cache.Acquire] for memory that this library mapped.
var ErrOwn = errors.New("regcache: memory of the library's own")

// Registration is one registration of caller-owned memory.
//
//	         Acquire (shared: a hit)
//	            +------+
//	            v      |      Release of the last
//	add ---> used(refs > 0) ----------------------> idle --+--> dropped
//	            |      ^                             |     |    (evicted,
//	 Invalidate |      +----------- a hit -----------+     |    invalidated)
//	            v                                          |
//	         doomed(refs > 0) ---- Release of the last ----+
//
// A doomed registration serves no further Acquire.
//
// A registration with remote access has a key that its user gives to peers, and it ends when the
// user ends it. So it serves one Acquire alone, and is never idle:
//
//	add ---> used(refs = 1) ---- Release ---> dropped
type Registration struct {
	addr, end uint64
	reach     uint64 // the largest end of this registration and of those before it in Cache.index
	access    verbs.AccessFlags
	arena     *mem.Arena // adopted for this registration
	mr        verbs.MR
	refs      int
	doomed    bool
	idle      *list.Element // in Cache.idle while refs is 0
}

// MR returns the registration of the device.
func (r *Registration) MR() verbs.MR { return r.mr }

// IOVA returns the address that a work request uses for the first byte of b. b must lie in the
// registered range.
func (r *Registration) IOVA(b []byte) uint64 {
	addr, _ := span(b)
	return r.mr.IOVA() + (addr - r.addr)
}

// Cache holds the registrations of caller-owned memory. Its owner sets the exported fields before
// the first use and serializes calls of its methods with a mutex. The methods enter the kernel.
type Cache struct {
	// Register registers memory with the device. It may call Trim to free idle registrations.
	Register func(addr, n uint64, access verbs.AccessFlags) (verbs.MR, error)
	// Deregistered is called after n bytes were deregistered.
	Deregistered func(n uint64, access verbs.AccessFlags)
	// Keep is the number of idle registrations that are kept, 0 or more.
	Keep int

	index        []*Registration // by addr
	idle         list.List       // of *Registration, most recently used first
	hits, misses uint64
}

// Stats returns how many calls of Acquire found a registration to share, how many did not, and the
// number of idle registrations.
func (c *Cache) Stats() (hits, misses uint64, idle int) { return c.hits, c.misses, c.idle.Len() }

// RemoteAccess is the set of flags that give peers access to memory.
const RemoteAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessFlushGlobal | verbs.AccessFlushPersistent

// serves reports whether r can be used where a registration of [addr, end) with access, which permits
// no remote access, is requested. r may cover a larger range, and allow local writes that were not
// requested, but no remote access.
func (r *Registration) serves(addr, end uint64, access verbs.AccessFlags) bool {
	return !r.doomed && r.addr <= addr && end <= r.end && access&^r.access == 0 && r.access&^access&^verbs.AccessLocalWrite == 0
}

// after returns the index of the first registration that begins above addr.
func (c *Cache) after(addr uint64) int {
	return sort.Search(len(c.index), func(i int) bool { return c.index[i].addr > addr })
}

func (c *Cache) find(addr, end uint64, access verbs.AccessFlags) *Registration {
	for i := c.after(addr) - 1; i >= 0 && c.index[i].reach >= end; i-- {
		if c.index[i].serves(addr, end, access) {
			return c.index[i]
		}
	}
	return nil
}

// reindex recomputes reach from index i on.
func (c *Cache) reindex(i int) {
	var reach uint64
	if i > 0 {
		reach = c.index[i-1].reach
	}
	for ; i < len(c.index); i++ {
		reach = max(reach, c.index[i].end)
		c.index[i].reach = reach
	}
}

// Acquire returns a registration that covers b, which is not empty. Without remote access it shares
// an existing registration if that is possible. Otherwise it makes a new one. The caller calls
// [Cache.Release] until it succeeds. Errors: [ErrOwn]; those of mem.AdoptFor and of the device.
func (c *Cache) Acquire(b []byte, access verbs.AccessFlags) (*Registration, error) {
	addr, end := span(b)
	if access&RemoteAccess == 0 {
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
	}
	if mem.OwnedIn(b) {
		return nil, ErrOwn
	}
	r := &Registration{addr: addr, end: end, access: access, refs: 1}
	var err error
	if r.arena, err = mem.AdoptFor(b, func(addr, n uint64) (err error) {
		r.mr, err = c.Register(addr, n, access)
		return err
	}); err != nil {
		if errors.Is(err, mem.ErrGoHeap) {
			err = fmt.Errorf("%w; a device may only have memory that never moves and is never collected: "+
				"use Alloc or NewRegion, or map it yourself (mmap)", err)
		}
		return nil, err
	}
	i := c.after(addr)
	c.index = append(c.index, nil)
	copy(c.index[i+1:], c.index[i:])
	c.index[i] = r
	c.reindex(i)
	return r, nil
}

// Release ends one use of r. A registration with remote access is dropped: if the device refuses,
// Release returns the error, and r stays in use. Of the others, Release keeps Keep idle ones, the most
// recently used, and drops the rest; one that cannot be deregistered becomes doomed and stays idle,
// and Trim tries again.
func (c *Cache) Release(r *Registration) error {
	if r.access&RemoteAccess != 0 {
		return c.drop(r)
	}
	if r.refs--; r.refs > 0 {
		return nil
	}
	r.idle = c.idle.PushFront(r)
	if r.doomed {
		_ = c.drop(r)
	}
	_ = c.Trim(c.Keep)
	return nil
}

// Trim drops idle registrations until at most keep are left.
func (c *Cache) Trim(keep int) error {
	var errs []error
	for n := c.idle.Len() - keep; n > 0; n-- {
		errs = append(errs, c.drop(c.idle.Back().Value.(*Registration)))
	}
	return errors.Join(errs...)
}

// drop deregisters a registration that is idle, or has remote access. If the device refuses, the
// registration is doomed, and an idle one stays idle, at the front.
func (c *Cache) drop(r *Registration) error {
	n := r.end - r.addr
	if err := r.mr.Close(); err != nil {
		r.doomed = true
		if r.idle != nil {
			c.idle.MoveToFront(r.idle)
		}
		return fmt.Errorf("runtime: deregistering %d bytes at 0x%x: %w", n, r.addr, err)
	}
	c.Deregistered(n, r.access)
	if r.idle != nil {
		c.idle.Remove(r.idle)
		r.idle = nil
	}
	for i := c.after(r.addr) - 1; i >= 0; i-- {
		if c.index[i] == r {
			c.index = append(c.index[:i], c.index[i+1:]...)
			c.reindex(i)
			break
		}
	}
	return r.arena.Unmap() // drops the arena; the mapping itself stays, because the caller owns it
}

// Invalidate drops the idle registrations that overlap b and dooms the used ones. If it doomed any,
// the error wraps [verbs.ErrBusy].
func (c *Cache) Invalidate(b []byte) error {
	addr, end := span(b)
	var errs []error
	busy := 0
	// The loop runs backwards, because a drop moves only the entries behind the dropped one.
	for i := c.after(end-1) - 1; i >= 0 && c.index[i].reach > addr; i-- {
		r := c.index[i]
		switch {
		case r.end <= addr:
		case r.refs > 0:
			r.doomed = true
			busy++
		default:
			errs = append(errs, c.drop(r))
		}
	}
	if busy > 0 {
		errs = append(errs, fmt.Errorf("%w: %d registrations overlap %d bytes at 0x%x; close their regions first", verbs.ErrBusy, busy, end-addr, addr))
	}
	return errors.Join(errs...)
}

// span returns the address range of b, which is not empty.
func span(b []byte) (addr, end uint64) {
	addr = uint64(reflect.ValueOf(b).Pointer())
	return addr, addr + uint64(len(b))
}
