//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// protectionDomain is a PD.
type protectionDomain struct {
	node
	c *C.struct_vb_pd
}

var _ verbs.PD = (*protectionDomain)(nil)

// Context returns the context of the domain.
func (p *protectionDomain) Context() verbs.Context { return p.ctx }

// Close deallocates the domain; [verbs.ErrBusy] while it has children.
//
// Implements: ibv_dealloc_pd.
func (p *protectionDomain) Close() error {
	return p.shut("ibv_dealloc_pd", func() syscall.Errno { return syscall.Errno(C.shim_dealloc_pd(p.ctx.t, p.c)) })
}

// memoryWindow is an MW.
type memoryWindow struct {
	node
	c   *C.struct_vb_mw
	typ verbs.MWType
	// last is the key at the time of Close. Written by Close, read by RKey after that.
	last atomic.Uint32
}

var _ verbs.MW = (*memoryWindow)(nil)

// AllocMW makes a memory window.
//
// Implements: ibv_alloc_mw.
func (p *protectionDomain) AllocMW(t verbs.MWType) (verbs.MW, error) {
	m := &memoryWindow{typ: t}
	p.ctx.windows.Add(1)
	if err := p.ctx.make("ibv_alloc_mw", &m.node, []*node{&p.node}, &p.ctx.counts.MW, func() (string, syscall.Errno) {
		var err error
		if m.c, err = C.shim_alloc_mw(p.c, C.vb_enum(t)); m.c == nil {
			return "", errnoOf(err)
		}
		return fmt.Sprintf("MW %d of %s", m.c.handle, p.ctx.info.Name), 0
	}); err != nil {
		p.ctx.windows.Add(-1)
		return nil, err
	}
	return m, nil
}

// Type returns the kind of the window.
func (m *memoryWindow) Type() verbs.MWType { return m.typ }

// RKey returns the key of the last binding that was posted, whether it has completed or not. A
// failed binding is not noticed here: the key is then one ahead of the last one bound, which does
// not harm the next binding (ibv_bind_mw(3), NOTES).
func (m *memoryWindow) RKey() uint32 {
	if m.ctx.keep("", &m.node) != nil {
		return m.last.Load()
	}
	defer m.ctx.release(&m.node)
	return uint32(C.shim_mw_rkey(m.c))
}

// Handle returns the value for SendWR.MW.
func (m *memoryWindow) Handle() uint64 { return addr(m.c) }

// Close deallocates the window.
//
// Implements: ibv_dealloc_mw.
func (m *memoryWindow) Close() error {
	return m.shut("ibv_dealloc_mw", func() syscall.Errno {
		m.last.Store(uint32(C.shim_mw_rkey(m.c)))
		e := syscall.Errno(C.shim_dealloc_mw(m.c))
		if e == 0 || m.ctx.gone(e) {
			m.ctx.windows.Add(-1)
		}
		return e
	})
}

// addressHandle is an AH.
type addressHandle struct {
	node
	c *C.struct_vb_ah
}

var _ verbs.AH = (*addressHandle)(nil)

// CreateAH makes an address handle.
//
// Implements: ibv_create_ah.
func (p *protectionDomain) CreateAH(attr *verbs.AHAttr) (verbs.AH, error) {
	h := &addressHandle{}
	a := ahToC(attr)
	if err := p.ctx.make("ibv_create_ah", &h.node, []*node{&p.node}, &p.ctx.counts.AH, func() (string, syscall.Errno) {
		var err error
		if h.c, err = C.shim_create_ah(p.ctx.t, p.c, &a); h.c == nil {
			return "", errnoOf(err)
		}
		return fmt.Sprintf("AH to %v of %s", attr.DGID, p.ctx.info.Name), 0
	}); err != nil {
		return nil, err
	}
	return h, nil
}

// Handle returns the value for SendWR.SetUD.
func (h *addressHandle) Handle() uint64 { return addr(h.c) }

// Close destroys the address handle.
//
// Implements: ibv_destroy_ah.
func (h *addressHandle) Close() error {
	return h.shut("ibv_destroy_ah", func() syscall.Errno { return syscall.Errno(C.shim_destroy_ah(h.ctx.t, h.c)) })
}
