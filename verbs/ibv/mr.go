//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// addr returns the address of a C object, as a number.
func addr[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// memoryRegion is an MR. It is immutable after creation.
type memoryRegion struct {
	node
	c     *C.struct_vb_mr
	arena *mem.Arena // pinned while the region lives; nil for memory outside of arenas
	addr  uint64
	len   uint64
	iova  uint64
	keys  [2]uint32 // local, remote
}

var _ verbs.MR = (*memoryRegion)(nil)

// RegMR registers length bytes at addr, which must lie in one arena of internal/mem; the arena
// stays pinned until the region is closed. The system locks the memory, which takes time
// proportional to its size.
//
// Errors: [verbs.ErrInvalid], [verbs.ErrMemlock] when the request exceeds the limit of locked
// memory, and the device's errors.
//
// Implements: ibv_reg_mr, ibv_reg_mr_iova2.
func (p *protectionDomain) RegMR(addr, length, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	const op = "ibv_reg_mr"
	switch {
	case !access.Consistent():
		return nil, opError(op, p.label, syscall.EINVAL, "%w: access %v needs LOCAL_WRITE", verbs.ErrInvalid, access)
	case length == 0 || length > math.MaxInt || iova+length < iova:
		return nil, opError(op, p.label, syscall.EINVAL, "%w: %d bytes from 0x%x", verbs.ErrInvalid, length, iova)
	}
	if access&verbs.AccessOnDemand != 0 {
		if err := p.onDemand(op, verbs.ODPSupport); err != nil {
			return nil, err
		}
	}
	if access&verbs.AccessZeroBased != 0 {
		iova = 0
	}
	arena, ok := mem.Find(addr, int(length))
	if !ok {
		return nil, opError(op, p.label, syscall.EFAULT, "%w: %d bytes at 0x%x are not off-heap memory of one arena", verbs.ErrInvalid, length, addr)
	}
	if err := arena.Pin(); err != nil {
		return nil, opError(op, p.label, syscall.EFAULT, "%w", err)
	}
	m := &memoryRegion{arena: arena, addr: addr, len: length, iova: iova}
	err := p.ctx.make(op, &m.node, []*node{&p.node}, &p.ctx.counts.MR, func() (string, syscall.Errno) {
		var err error
		if m.c, err = C.shim_reg_mr(p.ctx.t, p.c, C.uint64_t(addr), C.uint64_t(length), C.uint64_t(iova), C.uint32_t(p.ctx.sinkable(access))); m.c == nil {
			return "", errnoOf(err)
		}
		m.keys = [2]uint32{uint32(m.c.lkey), uint32(m.c.rkey)}
		return fmt.Sprintf("MR 0x%x of %s", m.keys[0], p.ctx.info.Name), 0
	})
	if err != nil {
		arena.Unpin()
		if access&verbs.AccessOnDemand != 0 {
			return nil, err // nothing would be locked (ib_umem_odp_get), so the limit is not the cause
		}
		return nil, memlock(err, length)
	}
	return m, nil
}

// sinkable returns the access of a registration. On iWARP the answer to a READ is a tagged message like a WRITE by
// the peer, so memory that a READ may fill needs REMOTE_WRITE (RFC 5040, 5.2; Linux drivers/infiniband/core/rw.c,
// rdma_rw_init_one_mr). Which memory that will be is not known when it is registered.
func (c *deviceContext) sinkable(access verbs.AccessFlags) verbs.AccessFlags {
	if access&verbs.AccessLocalWrite != 0 && c.c.device.transport_type == C.VB_TRANSPORT_IWARP {
		access |= verbs.AccessRemoteWrite
	}
	return access
}

// memlock adds the usual cause to a registration that failed for lack of memory: the limit. Only
// a limit that the request alone exceeds is certain; the runtime knows the sum.
func memlock(err error, length uint64) error {
	e, ok := errors.AsType[*verbs.OpError](err)
	if !ok || e.Errno != syscall.ENOMEM {
		return err
	}
	if limit, known := mem.MemlockLimit(); known && length > limit {
		e.Err = fmt.Errorf("%w: %d bytes, RLIMIT_MEMLOCK is %d", verbs.ErrMemlock, length, limit)
	}
	return e
}

// Addr returns the address of the first byte.
func (m *memoryRegion) Addr() uint64 { return m.addr }

// Length returns the size in bytes.
func (m *memoryRegion) Length() uint64 { return m.len }

// IOVA returns the address by which requests name the first byte.
func (m *memoryRegion) IOVA() uint64 { return m.iova }

// LKey returns the key for local use.
func (m *memoryRegion) LKey() uint32 { return m.keys[0] }

// RKey returns the key for peers.
func (m *memoryRegion) RKey() uint32 { return m.keys[1] }

// Handle returns the value for SendWR.BindMR.
func (m *memoryRegion) Handle() uint64 { return addr(m.c) }

// Close deregisters the region. [verbs.ErrBusy] while a memory window is bound to it, where the
// device reports that.
//
// Implements: ibv_dereg_mr.
func (m *memoryRegion) Close() error {
	return m.shut("ibv_dereg_mr", func() syscall.Errno {
		e := syscall.Errno(C.shim_dereg_mr(m.ctx.t, m.c))
		if e == syscall.EINVAL && m.ctx.rxe && m.ctx.windows.Load() != 0 {
			// Soft-RoCE's errno for a bound window (Linux 6.12 rxe_verbs.c, rxe_dereg_mr). On
			// other devices EINVAL may have another meaning.
			e = syscall.EBUSY
		}
		if (e == 0 || m.ctx.gone(e)) && m.arena != nil {
			m.arena.Unpin()
		}
		return e
	})
}
