package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// NewFileRegion implements [Runtime.NewFileRegion].
func (m *memory) NewFileRegion(path string, size int, access verbs.AccessFlags) (*Region, error) {
	refused := func(err error) error { return fmt.Errorf("runtime: region of %d bytes: file %s: %w", size, path, err) }
	if err := checkRegion(size, access); err != nil {
		return nil, err
	}
	if err := m.mayMap(int64(size)); err != nil { // before there is a file
		return nil, refused(err)
	}
	a, err := m.mapFile(path, size) // waits for the disk, so m.mu is not locked
	if err != nil {
		return nil, refused(err)
	}
	r, err := m.addRegion(size, access, func(r *Region) error {
		// Check the limit again: only now is the length in whole pages known.
		if err := m.budget(int64(a.Len())); err != nil {
			return err
		}
		mr, err := m.register(a.Addr(), uint64(size), access)
		if err != nil {
			return err
		}
		m.mapped += int64(a.Len())
		r.own = mapping{a, mr, locks(uint64(size), access)}
		r.mr, r.b, r.addr = mr, a.Bytes()[:size:size], mr.IOVA()
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("file %s: %w", path, err), a.Discard())
	}
	return r, nil
}

// mayMap returns an error if the memory is closed, or has no room for n more bytes now.
func (m *memory) mayMap(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing.Load() {
		return errMemoryClosed
	}
	return m.budget(n)
}

// Persistence returns what the region is on, and how [Region.Sync] and a persistent FLUSH on the
// software RNIC make its bytes persistent:
//
//	kind         method
//	"file"       "msync"                                       the file system has the bytes
//	"fsdax"      "clwb", "clflushopt", "clflush" or "dc cvap"  the bytes have left the processor's caches
//	"devdax"     the same as for fsdax
//	"volatile"   "none"                                        not a region of NewFileRegion
//
// The first instruction that the processor has is chosen. A file on persistent memory is a "file" on a
// processor without such an instruction, and then needs msync. A kernel device has a method of its own
// for a FLUSH. Persistence does not block.
func (r *Region) Persistence() (kind, method string) {
	if r.own.arena == nil {
		return mem.Volatile.String(), "none"
	}
	return r.own.arena.Kind().String(), r.own.arena.Method()
}

// Sync makes n bytes of a file region persistent, from offset off, by the method that
// [Region.Persistence] shows. So it waits for the disk, or only for the processor's caches. It
// includes what peers have written and the program knows to be there, for example by a message that
// followed. The bytes need not be persistent before Sync, and may be at any time.
//
// Errors: [ErrInvalid] if the region is not on a file; *[RangeError]; [ErrReleased] after Close;
// errors of the system, after which it is unknown which bytes are persistent.
//
// Implements: msync(2), pmem_persist of libpmem.
func (r *Region) Sync(off, n int) error {
	s, err := r.Slice(off, n)
	if err != nil {
		return err
	}
	if r.own.arena == nil || !r.own.arena.Persistent() {
		return fmt.Errorf("%w: the region is not on a file", verbs.ErrInvalid)
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.lease.End()
	return r.own.arena.Sync(r.own.arena.Addr()+uint64(off), n)
}
