//go:build linux && cgo && !portable

package ibv

// #include "calls_qp.h"
import "C"

import (
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// sharedReceiveQueue is an SRQ. It is immutable after creation.
type sharedReceiveQueue struct {
	node
	c        *C.struct_vb_srq
	userData uint64
	num      uint32 // of an XRC queue
	xrcd     verbs.XRCD
	cq       verbs.CQ
}

var _ verbs.SRQ = (*sharedReceiveQueue)(nil)

// CreateSRQ makes a shared receive queue and writes the granted capacities into attr.
//
// Implements: ibv_create_srq; ibv_create_srq_ex for an XRC one.
func (p *protectionDomain) CreateSRQ(attr *verbs.SRQAttr) (verbs.SRQ, error) {
	const op = "ibv_create_srq"
	c := p.ctx
	s := &sharedReceiveQueue{userData: attr.UserData, xrcd: attr.XRCD, cq: attr.CQ}
	parents := []*node{&p.node}
	var x *xrcDomain
	var cq *completionQueue
	if attr.XRCD == nil && attr.CQ != nil {
		return nil, opError(op, p.label, syscall.EINVAL, "%w: a completion queue and no XRC domain", verbs.ErrInvalid)
	}
	if attr.XRCD != nil {
		var okX, okQ bool
		x, okX = attr.XRCD.(*xrcDomain)
		cq, okQ = attr.CQ.(*completionQueue)
		if !okX || !okQ || x == nil || cq == nil || x.ctx != c || cq.ctx != c {
			return nil, foreign(op, p.label, fmt.Sprint(attr.XRCD, " with ", attr.CQ))
		}
		parents = append(parents, &x.node, &cq.node)
	}
	a := C.struct_vb_srq_attr{max_wr: C.uint32_t(attr.MaxWR), max_sge: C.uint32_t(attr.MaxSGE)}
	if err := c.make(op, &s.node, parents, &c.counts.SRQ, func() (string, syscall.Errno) {
		id := C.uint64_t(c.ids.add(s))
		var err error
		if x == nil {
			s.c, err = C.shim_create_srq(c.t, p.c, &a, id)
		} else {
			s.c, err = C.shim_create_xrc_srq(p.c, &a, x.c, cq.c, id)
		}
		if s.c == nil {
			return "", errnoOf(err)
		}
		if e := s.finish(attr, &a); e != 0 {
			C.shim_destroy_srq(c.t, s.c) // the failure is reported already
			return "", e
		}
		return fmt.Sprintf("SRQ %d of %s", s.c.handle, c.info.Name), 0
	}); err != nil {
		return nil, limited(err, "a shared receive queue of %d receives of %d elements", attr.MaxWR, attr.MaxSGE)
	}
	return s, nil
}

// finish reads the number and arms the limit, which creation does not do.
func (s *sharedReceiveQueue) finish(attr *verbs.SRQAttr, a *C.struct_vb_srq_attr) syscall.Errno {
	attr.MaxWR, attr.MaxSGE = uint32(a.max_wr), uint32(a.max_sge)
	if s.xrcd != nil {
		var num C.uint32_t
		if e := syscall.Errno(C.shim_srq_num(s.c, &num)); e != 0 {
			return e
		}
		s.num = uint32(num)
	}
	if attr.Limit == 0 {
		return 0
	}
	a.srq_limit = C.uint32_t(attr.Limit)
	return syscall.Errno(C.shim_modify_srq(s.ctx.t, s.c, a, C.VB_SRQ_LIMIT))
}

// Context returns the context of the queue.
func (s *sharedReceiveQueue) Context() verbs.Context { return s.ctx }

// UserData is the value given at creation.
func (s *sharedReceiveQueue) UserData() uint64 { return s.userData }

// Num returns the number of an XRC queue, 0 for others.
func (s *sharedReceiveQueue) Num() uint32 { return s.num }

func (s *sharedReceiveQueue) modify(a C.struct_vb_srq_attr, mask C.int) error {
	return s.use("ibv_modify_srq", func() syscall.Errno {
		return syscall.Errno(C.shim_modify_srq(s.ctx.t, s.c, &a, mask))
	})
}

// SetLimit arms the limit event once more.
//
// Implements: ibv_modify_srq with IBV_SRQ_LIMIT.
func (s *sharedReceiveQueue) SetLimit(limit uint32) error {
	return s.modify(C.struct_vb_srq_attr{srq_limit: C.uint32_t(limit)}, C.VB_SRQ_LIMIT)
}

// Resize changes the capacity in work requests.
//
// Implements: ibv_modify_srq with IBV_SRQ_MAX_WR.
func (s *sharedReceiveQueue) Resize(maxWR uint32) error {
	return s.modify(C.struct_vb_srq_attr{max_wr: C.uint32_t(maxWR)}, C.VB_SRQ_MAX_WR)
}

// Query reads the attributes.
//
// Implements: ibv_query_srq.
func (s *sharedReceiveQueue) Query() (verbs.SRQAttr, error) {
	var a C.struct_vb_srq_attr
	if err := s.use("ibv_query_srq", func() syscall.Errno { return syscall.Errno(C.shim_query_srq(s.ctx.t, s.c, &a)) }); err != nil {
		return verbs.SRQAttr{}, err
	}
	return verbs.SRQAttr{
		MaxWR: uint32(a.max_wr), MaxSGE: uint32(a.max_sge), Limit: uint32(a.srq_limit),
		UserData: s.userData, XRCD: s.xrcd, CQ: s.cq,
	}, nil
}

// Close destroys the queue. [verbs.ErrBusy] while queue pairs use it or events are
// unacknowledged.
//
// Implements: ibv_destroy_srq.
func (s *sharedReceiveQueue) Close() error {
	return s.shut("ibv_destroy_srq", func() syscall.Errno { return syscall.Errno(C.shim_destroy_srq(s.ctx.t, s.c)) })
}
