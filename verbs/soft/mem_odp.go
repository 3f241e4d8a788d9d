package soft

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// odpCaps returns the on-demand paging capabilities: all operations have them. This device
// reaches memory through the system's page tables, as the program does, and locks no memory, so
// AccessOnDemand changes nothing.
func odpCaps() verbs.ODPCaps {
	const rc = verbs.ODPSend | verbs.ODPRecv | verbs.ODPWrite | verbs.ODPRead | verbs.ODPAtomic |
		verbs.ODPSRQRecv | verbs.ODPFlush | verbs.ODPAtomicWrite
	return verbs.ODPCaps{
		General: verbs.ODPSupport, RC: rc, XRC: rc,
		UC: verbs.ODPSend | verbs.ODPRecv | verbs.ODPWrite | verbs.ODPSRQRecv,
		UD: verbs.ODPSend | verbs.ODPRecv | verbs.ODPSRQRecv,
	}
}

// RegImplicit returns ErrNotSupported: this device finds memory by its arena, and an address
// alone identifies none.
//
// Implements: ibv_reg_mr with addr 0 and length SIZE_MAX.
func (p *protectionDomain) RegImplicit(verbs.AccessFlags) (verbs.MR, error) {
	return nil, notYet("ibv_reg_mr", p.String(), "a region of the whole address space: this device knows memory by its arenas")
}

// RegDMABuf returns ErrNotSupported: this device copies with the CPU, which cannot reach the
// exported memory of another device.
//
// Implements: ibv_reg_dmabuf_mr.
func (p *protectionDomain) RegDMABuf(int, uint64, uint64, uint64, verbs.AccessFlags) (verbs.MR, error) {
	return nil, notYet("ibv_reg_dmabuf_mr", p.String(), "memory of another device: this one copies with the CPU")
}

// AdviseMR brings pages of on-demand regions into memory. With AdviseFlush it blocks until they
// are present. Without it, it only checks the ranges, because first use brings the pages in
// anyway. AdvisePrefetchNoFault has no effect.
//
// Implements: ibv_advise_mr, with the errnos of mlx5 (kernel, odp.c, mlx5_ib_advise_mr_prefetch).
func (p *protectionDomain) AdviseMR(a verbs.Advice, flags verbs.AdviseFlags, list []verbs.SGE) error {
	const op = "ibv_advise_mr"
	if len(list) == 0 || flags&^verbs.AdviseFlush != 0 {
		return opError(op, p.String(), syscall.EINVAL, "%w: %d ranges, flags 0x%x", verbs.ErrInvalid, len(list), uint32(flags))
	}
	if a > verbs.AdvisePrefetchNoFault {
		return notYet(op, p.String(), a.String())
	}
	need := verbs.AccessOnDemand
	if a == verbs.AdvisePrefetchWrite {
		need |= verbs.AccessLocalWrite
	}
	fetch := flags&verbs.AdviseFlush != 0 && a != verbs.AdvisePrefetchNoFault
	for _, s := range list {
		var m *memoryRegion
		var why error
		if err := p.exclusive(op, func() {
			if m, why = p.ctx.dev.resolve(p, s.LKey, s.Addr, s.Length, need); why == nil && fetch {
				why = m.arena.Pin() // pinned while the pages are brought in
			}
		}); err != nil {
			return err
		}
		if why != nil {
			return opError(op, p.String(), adviceErrno(why), "%w: %d bytes at 0x%x: %w", verbs.ErrInvalid, s.Length, s.Addr, why)
		}
		if fetch {
			bring(m.arena, m.addr+(s.Addr-m.iova), int(s.Length), a == verbs.AdvisePrefetchWrite)
		}
	}
	return nil
}

// bring prefetches pages of a pinned arena and unpins it.
func bring(a *mem.Arena, addr uint64, n int, write bool) {
	a.Prefetch(addr, n, write)
	a.Unpin()
}

func adviceErrno(why error) syscall.Errno {
	switch {
	case errors.Is(why, errKey):
		return syscall.ENOENT
	case errors.Is(why, errAccess):
		return syscall.EPERM
	}
	return syscall.EFAULT
}
