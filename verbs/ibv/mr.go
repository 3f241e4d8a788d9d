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

// addr is the address of an object of C, as a number.
func addr[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// memoryRegion is an MR. It is immutable after creation.
type memoryRegion struct {
	node
	c     *C.struct_vb_mr
	arena *mem.Arena // pinned while the region lives; nil for memory that is no arena's
	addr  uint64
	len   uint64
	iova  uint64
	keys  [2]uint32 // local, remote
}

var _ verbs.MR = (*memoryRegion)(nil)

// RegMR registers length bytes at addr, which must lie in one arena of
// internal/mem; the arena stays pinned until the region is closed. The system
// locks the memory, which takes time by its size.
//
// Errors: [verbs.ErrInvalid], [verbs.ErrMemlock] when the limit of locked memory
// is below what is asked for, and what the device says.
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
		if m.c, err = C.shim_reg_mr(p.ctx.t, p.c, C.uint64_t(addr), C.uint64_t(length), C.uint64_t(iova), C.uint32_t(access)); m.c == nil {
			return "", errnoOf(err)
		}
		m.keys = [2]uint32{uint32(m.c.lkey), uint32(m.c.rkey)}
		return fmt.Sprintf("MR 0x%x of %s", m.keys[0], p.ctx.info.Name), 0
	})
	if err != nil {
		arena.Unpin()
		if access&verbs.AccessOnDemand != 0 {
			return nil, err // nothing would be locked (ib_umem_odp_get): the limit has no part in it
		}
		return nil, memlock(err, length)
	}
	return m, nil
}

// memlock says of a registration that failed for want of memory what is usually
// meant: the limit. Only a limit that the request alone exceeds is certain; the
// runtime knows the sum.
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

// Addr is where the memory begins.
func (m *memoryRegion) Addr() uint64 { return m.addr }

// Length is its size in bytes.
func (m *memoryRegion) Length() uint64 { return m.len }

// IOVA is the address by which requests name its first byte.
func (m *memoryRegion) IOVA() uint64 { return m.iova }

// LKey is the key for local use.
func (m *memoryRegion) LKey() uint32 { return m.keys[0] }

// RKey is the key for peers.
func (m *memoryRegion) RKey() uint32 { return m.keys[1] }

// Handle is for SendWR.BindMR.
func (m *memoryRegion) Handle() uint64 { return addr(m.c) }

// Close deregisters the region. [verbs.ErrBusy] while a memory window is bound
// to it, where the device says so.
//
// Implements: ibv_dereg_mr.
func (m *memoryRegion) Close() error {
	return m.shut("ibv_dereg_mr", func() syscall.Errno {
		e := syscall.Errno(C.shim_dereg_mr(m.ctx.t, m.c))
		if e == syscall.EINVAL && m.ctx.rxe && m.ctx.windows.Load() != 0 {
			// Soft-RoCE's word for a window that is bound (Linux 6.12 rxe_verbs.c,
			// rxe_dereg_mr). What other devices mean by EINVAL only they know.
			e = syscall.EBUSY
		}
		if (e == 0 || m.ctx.gone(e)) && m.arena != nil {
			m.arena.Unpin()
		}
		return e
	})
}
