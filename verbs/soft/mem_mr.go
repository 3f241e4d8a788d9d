package soft

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// memoryRegion is an MR. It is immutable after creation, except for the fields that say
// otherwise.
type memoryRegion struct {
	pd      *protectionDomain
	arena   *mem.Arena // pinned while the region lives
	data    []byte     // the memory itself
	addr    uint64
	iova    uint64 // the address of addr in requests, local and remote
	access  verbs.AccessFlags
	foreign bool   // the memory can stop being there, see mem_fault.go
	slow    bool   // an access may wait for a disk, see disk_memory.go; then it is foreign, too
	key     uint32 // both lkey and rkey
	slot    int    // its bit in guard.regions

	guard   guard // of READ responses that point into it
	windows int   // bound to it; under the port's token
	// atDisk counts the spans of jobs (disk.go). The engine raises it, their goroutines lower it,
	// Close waits for it.
	atDisk sync.WaitGroup
	closed atomic.Bool // set by Close under the port's token; any goroutine may read it
	ending sync.Mutex  // held by Close, so that a concurrent Close returns no earlier
}

var _ verbs.MR = (*memoryRegion)(nil)

// accessKnown are the access bits a region may have.
const accessKnown = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessMWBind | verbs.AccessZeroBased | verbs.AccessHugeTLB | verbs.AccessRelaxedOrdering |
	verbs.AccessFlushGlobal | verbs.AccessFlushPersistent | verbs.AccessOnDemand

// RegMR registers length bytes at addr, which must lie in one arena of internal/mem. The arena
// stays pinned until the region is closed. Requests, local and remote, address the memory from
// iova on; with AccessZeroBased iova is 0. It returns EFAULT for memory that the program mapped without
// the permissions for access, or that reaches beyond the end of its file.
//
// Implements: ibv_reg_mr_iova2.
func (p *protectionDomain) RegMR(addr, length, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	const op = "ibv_reg_mr"
	refuse := func(errno syscall.Errno, format string, a ...any) (verbs.MR, error) {
		return nil, opError(op, p.String(), errno, format, a...)
	}
	switch {
	case access&^accessKnown != 0:
		return refuse(syscall.EINVAL, "%w: access bits %v do not exist", verbs.ErrInvalid, access&^accessKnown)
	case !access.Consistent():
		return refuse(syscall.EINVAL, "%w: access %v needs LOCAL_WRITE", verbs.ErrInvalid, access)
	case length == 0 || length > math.MaxInt:
		return refuse(syscall.EINVAL, "%w: a region of %d bytes", verbs.ErrInvalid, length)
	case iova+length < iova:
		return refuse(syscall.EINVAL, "%w: %d bytes from 0x%x wrap around", verbs.ErrInvalid, length, iova)
	}
	if access&verbs.AccessZeroBased != 0 {
		iova = 0
	}
	arena, ok := mem.Find(addr, int(length))
	if !ok {
		return refuse(syscall.EFAULT, "%w: %d bytes at 0x%x are not off-heap memory of one arena", verbs.ErrInvalid, length, addr)
	}
	if err := arena.Check(addr, int(length), access&verbs.AccessLocalWrite != 0, access&verbs.AccessOnDemand == 0); err != nil {
		return refuse(syscall.EFAULT, "%w: %w", verbs.ErrInvalid, err)
	}
	if access&verbs.AccessFlushPersistent != 0 && !arena.Persistent() {
		// As rdma_rxe for pages that are not persistent memory (rxe_mr.c).
		return refuse(syscall.EINVAL, "%w: access FLUSH_PERSISTENT needs the mapping of a file (runtime: NewFileRegion)", verbs.ErrInvalid)
	}
	if err := arena.Pin(); err != nil {
		return refuse(syscall.EFAULT, "%w", err)
	}
	data, ok := arena.Slice(addr, int(length))
	if !ok {
		arena.Unpin()
		return refuse(syscall.EFAULT, "%w: %d bytes at 0x%x were unmapped meanwhile", verbs.ErrInvalid, length, addr)
	}
	m := &memoryRegion{pd: p, arena: arena, data: data, addr: addr, iova: iova, access: access, foreign: arena.MayFault()}
	m.slow = p.ctx.dev.disk.mayWait(arena)
	var err error
	if e := p.exclusive(op, func() { err = p.ctx.dev.addRegion(m) }); e != nil || err != nil {
		arena.Unpin()
		if err != nil {
			e = opError(op, p.String(), syscall.ENOMEM, "%w", err)
		}
		return nil, e
	}
	return m, nil
}

// addRegion assigns m its key and slot. The caller holds the token.
func (d *device) addRegion(m *memoryRegion) (err error) {
	if d.keys.n-d.windows >= d.cfg.Limits.MaxMR {
		return fmt.Errorf("all %d memory regions are in use", d.cfg.Limits.MaxMR)
	}
	if m.key, err = d.keys.fresh(d.random); err != nil {
		return err
	}
	if n := len(d.freeSlots); n > 0 {
		m.slot, d.freeSlots = d.freeSlots[n-1], d.freeSlots[:n-1]
	} else {
		m.slot = d.usedSlots
		d.usedSlots++
	}
	d.keys.put(keySlot{key: m.key, mr: m})
	if m.slow {
		d.slowRegions++
	}
	m.pd.mrs++
	m.pd.ctx.counts.MR++
	return nil
}

// Close deregisters the region. Its keys are invalid at once, and its memory is neither read nor
// written after Close has returned. It waits only for receivers that are copying at this moment,
// and for disks, if FLUSHes or accesses to a file are in progress. Work requests that still use the region end in a protection
// error. It returns [verbs.ErrBusy] while a memory window is bound to the region.
//
// Implements: ibv_dereg_mr.
func (m *memoryRegion) Close() (err error) {
	const op = "ibv_dereg_mr"
	m.ending.Lock()
	defer m.ending.Unlock()
	if m.closed.Load() {
		return nil
	}
	if e := m.pd.ctx.closing(op, func() {
		if m.windows > 0 {
			err = opError(op, m.String(), syscall.EBUSY, "%w: %s bound to it", verbs.ErrBusy, count(m.windows, "memory windows"))
			return
		}
		m.closed.Store(true)
		d := m.pd.ctx.dev
		d.keys.remove(keyIndex(m.key))
		if m.slow {
			d.slowRegions--
		}
		m.guard.kill()
		d.eachQP(func(q *queuePair) {
			if q.guard.covers(m) {
				q.revoke()
			}
		})
		d.freeSlots = append(d.freeSlots, m.slot)
		m.pd.mrs--
		m.pd.ctx.counts.MR--
	}); e != nil {
		return e
	}
	if err == nil {
		m.atDisk.Wait()
		m.arena.Unpin()
	}
	return err
}

// Reasons for refusing a range of a region.
var (
	errKey    = errors.New("no such key")
	errRange  = errors.New("range outside the region")
	errAccess = errors.New("access not permitted")
)

// view returns the n bytes at request address addr, if all of them lie inside.
func (m *memoryRegion) view(addr uint64, n uint32) ([]byte, bool) {
	off := addr - m.iova // wraps to a huge value when addr is below
	size := uint64(len(m.data))
	if off > size || uint64(n) > size-off {
		return nil, false
	}
	return m.data[off : off+uint64(n) : off+uint64(n)], true
}

// word returns the 8-byte word at request address addr.
func (m *memoryRegion) word(addr uint64) (*uint64, bool) {
	if _, ok := m.view(addr, 8); !ok {
		return nil, false
	}
	return m.arena.Word(m.addr + (addr - m.iova))
}

// resolve finds the region of a key. It checks that the key exists in this domain, permits need
// and covers the range. It is called anew for every packet, to detect a region that is closed in
// the middle of a message.
func (d *device) resolve(pd *protectionDomain, key uint32, addr uint64, n uint32, need verbs.AccessFlags) (*memoryRegion, error) {
	m := d.keys.get(key)
	if m == nil || m.pd != pd {
		return nil, errKey
	}
	if m.access&need != need {
		return nil, errAccess
	}
	if off := addr - m.iova; off > uint64(len(m.data)) || uint64(n) > uint64(len(m.data))-off {
		return nil, errRange
	}
	return m, nil
}

// Addr returns the address of the first byte.
func (m *memoryRegion) Addr() uint64 { return m.addr }

// Length returns the length in bytes.
func (m *memoryRegion) Length() uint64 { return uint64(len(m.data)) }

// IOVA returns the address of the first byte in requests.
func (m *memoryRegion) IOVA() uint64 { return m.iova }

// LKey returns the key for elements of local requests.
func (m *memoryRegion) LKey() uint32 { return m.key }

// RKey returns the key for peers. It permits only the region's AccessFlags.
func (m *memoryRegion) RKey() uint32 { return m.key }

// Handle returns the key, which identifies the region.
func (m *memoryRegion) Handle() uint64 { return uint64(m.key) }

// String describes the region without its key, which is a secret.
func (m *memoryRegion) String() string {
	return fmt.Sprintf("MR of %d bytes at 0x%x in %v", len(m.data), m.addr, m.pd)
}
