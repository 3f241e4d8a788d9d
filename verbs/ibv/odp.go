//go:build linux && cgo && !portable

package ibv

// #include "calls_more.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

func odpFromC(x *C.struct_vb_device_attr_ex) verbs.ODPCaps {
	t := &x.odp_caps.per_transport_caps
	return verbs.ODPCaps{
		General: verbs.ODPGeneral(x.odp_caps.general_caps),
		RC:      verbs.ODPOps(t.rc_odp_caps), UC: verbs.ODPOps(t.uc_odp_caps), UD: verbs.ODPOps(t.ud_odp_caps),
		XRC: verbs.ODPOps(x.xrc_odp_caps),
	}
}

// onDemand returns an error for a capability that the device lacks. Kernels differ in the errno:
// EINVAL, then EOPNOTSUPP (ib_check_mr_access).
func (p *protectionDomain) onDemand(op string, what verbs.ODPGeneral) error {
	var x C.struct_vb_device_attr_ex
	if err := p.use(op, func() syscall.Errno {
		return syscall.Errno(C.shim_query_device(p.ctx.t, p.ctx.c, &x))
	}); err != nil {
		return err
	}
	if odpFromC(&x).General&what != what {
		return opError(op, p.label, syscall.EOPNOTSUPP, "%w: memory on demand", verbs.ErrNotSupported)
	}
	return nil
}

// implicitAccess are the access bits permitted for a region of the whole address space: none that
// opens it to peers.
const implicitAccess = verbs.AccessLocalWrite | verbs.AccessOnDemand | verbs.AccessRelaxedOrdering

// RegImplicit registers the whole address space on demand, for local use.
//
// Implements: ibv_reg_mr with addr 0 and length SIZE_MAX.
func (p *protectionDomain) RegImplicit(access verbs.AccessFlags) (verbs.MR, error) {
	const op = "ibv_reg_mr"
	if access&^implicitAccess != 0 {
		return nil, opError(op, p.label, syscall.EINVAL, "%w: access %v on the whole address space", verbs.ErrInvalid, access&^implicitAccess)
	}
	if err := p.onDemand(op, verbs.ODPSupport|verbs.ODPImplicit); err != nil {
		return nil, err
	}
	m := &memoryRegion{len: math.MaxUint64}
	return p.region(op, m, "implicit", func() (*C.struct_vb_mr, error) {
		m, err := C.shim_reg_mr(p.ctx.t, p.c, 0, math.MaxUint64, 0, C.uint32_t(p.ctx.sinkable(access|verbs.AccessOnDemand)))
		return m, err
	})
}

// region makes a region outside of arenas.
func (p *protectionDomain) region(op string, m *memoryRegion, kind string, reg func() (*C.struct_vb_mr, error)) (verbs.MR, error) {
	if err := p.ctx.make(op, &m.node, []*node{&p.node}, &p.ctx.counts.MR, func() (string, syscall.Errno) {
		var err error
		if m.c, err = reg(); m.c == nil {
			return "", errnoOf(err)
		}
		m.keys = [2]uint32{uint32(m.c.lkey), uint32(m.c.rkey)}
		return fmt.Sprintf("%s MR 0x%x of %s", kind, m.keys[0], p.ctx.info.Name), 0
	}); err != nil {
		return nil, err
	}
	return m, nil
}

// dmabufAccess are the access bits permitted for memory of another device (ibv_reg_mr(3)).
const dmabufAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead |
	verbs.AccessRemoteAtomic | verbs.AccessRelaxedOrdering

// RegDMABuf registers memory that another device exports as a descriptor.
//
// Implements: ibv_reg_dmabuf_mr.
func (p *protectionDomain) RegDMABuf(fd int, offset, length, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	const op = "ibv_reg_dmabuf_mr"
	page := uint64(syscall.Getpagesize())
	switch {
	case access&^dmabufAccess != 0 || !access.Consistent():
		return nil, opError(op, p.label, syscall.EINVAL, "%w: access %v", verbs.ErrInvalid, access)
	case fd < 0 || fd > math.MaxInt32:
		return nil, opError(op, p.label, syscall.EBADF, "%w: file descriptor %d", verbs.ErrInvalid, fd)
	case length == 0 || length > math.MaxInt64 || offset+length < offset || iova+length < iova:
		return nil, opError(op, p.label, syscall.EINVAL, "%w: %d bytes from %d, named from 0x%x", verbs.ErrInvalid, length, offset, iova)
	case offset%page != iova%page:
		return nil, opError(op, p.label, syscall.EINVAL, "%w: offset %d and address 0x%x have different places in their pages", verbs.ErrInvalid, offset, iova)
	}
	m := &memoryRegion{len: length, iova: iova}
	mr, err := p.region(op, m, "dmabuf", func() (*C.struct_vb_mr, error) {
		m, err := C.shim_reg_dmabuf(p.ctx.t, p.c, C.uint64_t(offset), C.uint64_t(length), C.uint64_t(iova), C.int(fd), C.uint32_t(p.ctx.sinkable(access)))
		return m, err
	})
	return mr, asInvalid(err, syscall.EBADF)
}

// AdviseMR announces future use of on-demand regions to the device.
//
// Implements: ibv_advise_mr.
func (p *protectionDomain) AdviseMR(a verbs.Advice, flags verbs.AdviseFlags, list []verbs.SGE) error {
	const op = "ibv_advise_mr"
	if len(list) == 0 || len(list) > math.MaxInt32 {
		return opError(op, p.label, syscall.EINVAL, "%w: %d ranges", verbs.ErrInvalid, len(list))
	}
	err := p.use(op, func() syscall.Errno {
		return syscall.Errno(C.shim_advise_mr(p.c, C.vb_enum(a), C.uint32_t(flags),
			(*C.struct_vb_sge)(unsafe.Pointer(unsafe.SliceData(list))), C.uint32_t(len(list))))
	})
	// The kernel's errors for a range that the caller may not name
	// (drivers/infiniband/hw/mlx5/odp.c, get_prefetchable_mr, pagefault_mr).
	return asInvalid(err, syscall.ENOENT, syscall.EFAULT, syscall.EPERM)
}

// asInvalid makes ErrInvalid the cause of a call that failed with one of the errnos, which mean
// that for this call.
func asInvalid(err error, errnos ...syscall.Errno) error {
	e, ok := errors.AsType[*verbs.OpError](err)
	if !ok || e.Err != nil {
		return err
	}
	for _, n := range errnos {
		if e.Errno == n {
			e.Err = verbs.ErrInvalid
		}
	}
	return e
}
