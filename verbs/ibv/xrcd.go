//go:build linux && cgo && !portable

package ibv

// #include "calls_qp.h"
import "C"

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// xrcDomain is an XRCD.
type xrcDomain struct {
	node
	c *C.struct_vb_xrcd
}

var _ verbs.XRCD = (*xrcDomain)(nil)

// Context returns the context of the domain.
func (x *xrcDomain) Context() verbs.Context { return x.ctx }

// CreateQP makes an XRC_RECV queue pair.
//
// Implements: ibv_create_qp_ex with IBV_QP_INIT_ATTR_XRCD.
func (x *xrcDomain) CreateQP(init *verbs.QPInitAttr) (verbs.QP, error) {
	q, err := x.createQP("ibv_create_qp_ex", init)
	if err != nil {
		return nil, err
	}
	return q, nil
}

func (x *xrcDomain) createQP(op string, init *verbs.QPInitAttr) (*queuePair, error) {
	if init.Type != verbs.QPTXRCRecv {
		return nil, opError(op, x.label, syscall.EINVAL, "%w: a queue pair of type %v on an XRC domain", verbs.ErrInvalid, init.Type)
	}
	return x.handle(op, init.UserData, func(id C.uint64_t) (q *C.struct_vb_qp, err error) {
		q, err = C.shim_create_xrc_recv(x.c, id)
		return q, err
	})
}

// OpenQP makes another handle on an XRC_RECV queue pair of the domain.
//
// Implements: ibv_open_qp.
func (x *xrcDomain) OpenQP(num uint32, userData uint64) (verbs.QP, error) {
	q, err := x.handle("ibv_open_qp", userData, func(id C.uint64_t) (q *C.struct_vb_qp, err error) {
		q, err = C.shim_open_qp(x.c, C.uint32_t(num), id)
		return q, err
	})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// handle makes a queue pair object of the domain.
func (x *xrcDomain) handle(op string, userData uint64, create func(id C.uint64_t) (*C.struct_vb_qp, error)) (*queuePair, error) {
	c := x.ctx
	q := &queuePair{init: verbs.QPInitAttr{Type: verbs.QPTXRCRecv, UserData: userData}}
	if err := c.make(op, &q.node, []*node{&x.node}, &c.counts.QP, func() (string, syscall.Errno) {
		var err error
		if q.c, err = create(C.uint64_t(c.ids.add(q))); q.c == nil {
			return "", errnoOf(err)
		}
		return q.named(), 0
	}); err != nil {
		return nil, err
	}
	return q, nil
}

// Close closes the domain. [verbs.ErrBusy] while it has queue pairs or shared
// receive queues.
//
// Implements: ibv_close_xrcd.
func (x *xrcDomain) Close() error {
	return x.shut("ibv_close_xrcd", func() syscall.Errno { return syscall.Errno(C.shim_close_xrcd(x.c)) })
}
