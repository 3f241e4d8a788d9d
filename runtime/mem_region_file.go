package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// NewFileRegion implements [Runtime.NewFileRegion].
func (m *memory) NewFileRegion(path string, size int, access verbs.AccessFlags) (*Region, error) {
	return m.addRegion(size, access, func(r *Region) (err error) {
		if r.own, err = m.mapFile(path, size, access); err != nil {
			return fmt.Errorf("file %s: %w", path, err)
		}
		r.mr, r.b = r.own.mr, r.own.arena.Bytes()[:size:size]
		r.addr = r.mr.IOVA()
		return nil
	})
}

// mapFile maps and registers the first size bytes of the file at path. The caller holds m.mu.
func (m *memory) mapFile(path string, size int, access verbs.AccessFlags) (mapping, error) {
	if err := m.budget(int64(size)); err != nil {
		return mapping{}, err
	}
	a, err := mem.MapFile(path, size)
	if err != nil {
		return mapping{}, err
	}
	// Check the limit again: only now is the length in whole pages known.
	if err := m.budget(int64(a.Len())); err != nil {
		return mapping{}, errors.Join(err, a.Unmap())
	}
	mr, err := m.register(a.Addr(), uint64(size), access)
	if err != nil {
		return mapping{}, errors.Join(err, a.Unmap())
	}
	m.mapped += int64(a.Len())
	return mapping{a, mr, locks(uint64(size), access)}, nil
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
