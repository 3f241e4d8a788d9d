//go:build linux && cgo && !portable

package ibv

// #include "calls_more.h"
import "C"

import (
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// threadDomain is a TD.
type threadDomain struct {
	node
	c *C.struct_vb_td
}

var _ verbs.TD = (*threadDomain)(nil)

// AllocTD makes a thread domain. ErrNotSupported where the driver has none; in rdma-core, mlx5,
// efa, hns and ionic have them.
//
// Implements: ibv_alloc_td.
func (c *deviceContext) AllocTD() (verbs.TD, error) {
	t := &threadDomain{}
	if err := c.make("ibv_alloc_td", &t.node, nil, &c.counts.TD, func() (string, syscall.Errno) {
		var err error
		if t.c, err = C.shim_alloc_td(c.c); t.c == nil {
			return "", errnoOf(err)
		}
		return "TD of " + c.info.Name, 0
	}); err != nil {
		return nil, err
	}
	return t, nil
}

// Context returns the context of the domain.
func (t *threadDomain) Context() verbs.Context { return t.ctx }

// Close deallocates the domain; [verbs.ErrBusy] while a parent domain uses it.
//
// Implements: ibv_dealloc_td.
func (t *threadDomain) Close() error {
	return t.shut("ibv_dealloc_td", func() syscall.Errno { return syscall.Errno(C.shim_dealloc_td(t.c)) })
}

// AllocParentDomain makes a domain that stands for this one, with a thread domain.
//
// Implements: ibv_alloc_parent_domain.
func (p *protectionDomain) AllocParentDomain(td verbs.TD) (verbs.PD, error) {
	const op = "ibv_alloc_parent_domain"
	parents := []*node{&p.node}
	var c *C.struct_vb_td
	if td != nil {
		t, ok := td.(*threadDomain)
		if !ok || t == nil || t.ctx != p.ctx {
			return nil, foreign(op, p.label, td)
		}
		parents, c = append(parents, &t.node), t.c
	}
	own := &protectionDomain{}
	if err := p.ctx.make(op, &own.node, parents, &p.ctx.counts.PD, func() (string, syscall.Errno) {
		var err error
		if own.c, err = C.shim_parent_domain(p.c, c); own.c == nil {
			return "", errnoOf(err)
		}
		return fmt.Sprintf("parent domain of %s", p.label), 0
	}); err != nil {
		return nil, err
	}
	return own, nil
}
