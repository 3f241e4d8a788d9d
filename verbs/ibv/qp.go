//go:build linux && cgo && !portable

package ibv

// #include "calls_qp.h"
import "C"

import (
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// queuePair is a QP. Its C object is touched by turns without a lock; see the
// package comment.
type queuePair struct {
	node
	c    *C.struct_vb_qp
	num  uint32             // outlives c
	ex   *C.struct_vb_qp_ex // nil without extended posting
	ops  uint32             // the operations that ex has
	init verbs.QPInitAttr   // with the capacities granted

	groups groups // attached to
}

var _ verbs.QP = (*queuePair)(nil)

// The operations to ask extended posting for, by type: what exists for it at
// all (providers/rxe/rxe.c and providers/mlx5/verbs.c, the supported masks).
const (
	opsUD = C.VB_QP_EX_WITH_SEND | C.VB_QP_EX_WITH_SEND_WITH_IMM
	opsUC = opsUD | C.VB_QP_EX_WITH_RDMA_WRITE | C.VB_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		C.VB_QP_EX_WITH_BIND_MW | C.VB_QP_EX_WITH_LOCAL_INV | C.VB_QP_EX_WITH_SEND_WITH_INV
	opsRC = opsUC | C.VB_QP_EX_WITH_RDMA_READ | C.VB_QP_EX_WITH_ATOMIC_CMP_AND_SWP | C.VB_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
	// opsNew came late (v46); a library or device without them refuses the
	// creation.
	opsNew = C.VB_QP_EX_WITH_FLUSH | C.VB_QP_EX_WITH_ATOMIC_WRITE
)

// ladder are the sets of operations to try, the best first; 0 is without
// extended posting. What a device lacks shows only in its refusal.
func ladder(t verbs.QPType) []uint64 {
	switch t {
	case verbs.QPTRC, verbs.QPTXRCSend:
		return []uint64{opsRC | opsNew, opsRC | C.VB_QP_EX_WITH_FLUSH, opsRC, 0}
	case verbs.QPTUC:
		return []uint64{opsUC | C.VB_QP_EX_WITH_FLUSH, opsUC, opsUD | C.VB_QP_EX_WITH_RDMA_WRITE | C.VB_QP_EX_WITH_RDMA_WRITE_WITH_IMM, 0}
	case verbs.QPTUD:
		return []uint64{opsUD, 0}
	}
	return []uint64{0}
}

// CreateQP makes a queue pair, with extended posting of all operations the
// device has.
//
// Implements: ibv_create_qp_ex with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
// ibv_create_qp where that is refused.
func (p *protectionDomain) CreateQP(init *verbs.QPInitAttr) (verbs.QP, error) {
	return p.createQP("ibv_create_qp", init)
}

func (p *protectionDomain) createQP(op string, init *verbs.QPInitAttr) (*queuePair, error) {
	c := p.ctx
	scq, ok := init.SendCQ.(*completionQueue)
	if !ok || scq == nil || scq.ctx != c {
		return nil, foreign(op, p.label, init.SendCQ)
	}
	a := C.struct_vb_qp_init_attr{send_cq: scq.c, qp_type: C.vb_enum(init.Type), cap: capToC(&init.Cap)}
	parents := []*node{&p.node, &scq.node}
	if init.RecvCQ != nil || init.Type != verbs.QPTXRCSend {
		rcq, ok := init.RecvCQ.(*completionQueue)
		if !ok || rcq == nil || rcq.ctx != c {
			return nil, foreign(op, p.label, init.RecvCQ)
		}
		a.recv_cq, parents = rcq.c, append(parents, &rcq.node)
	}
	if init.SRQ != nil {
		srq, ok := init.SRQ.(*sharedReceiveQueue)
		if !ok || srq == nil || srq.ctx != c {
			return nil, foreign(op, p.label, init.SRQ)
		}
		a.srq, parents = srq.c, append(parents, &srq.node)
		a.cap.max_recv_wr, a.cap.max_recv_sge = 0, 0 // ignored (semantics 33), not by all
	}
	if init.SQSigAll {
		a.sq_sig_all = 1
	}
	q := &queuePair{}
	if err := c.make(op, &q.node, parents, &c.counts.QP, func() (string, syscall.Errno) {
		a.qp_context = C.shim_id(C.uint64_t(c.ids.add(q)))
		if e := q.create(p, &a, init.Type); e != 0 {
			return "", e
		}
		init.Cap = capFromC(&a.cap)
		q.init = *init
		return q.named(), 0
	}); err != nil {
		return nil, err
	}
	return q, nil
}

// create climbs down the ladder. A refusal for another reason than extended
// posting comes again on each rung, and from the last it is the answer.
func (q *queuePair) create(p *protectionDomain, a *C.struct_vb_qp_init_attr, t verbs.QPType) syscall.Errno {
	e := syscall.Errno(0)
	for _, ops := range ladder(t) {
		try := *a
		var err error
		if q.c, err = C.shim_create_qp(p.ctx.t, p.c, &try, C.uint64_t(ops)); q.c == nil {
			if e = errnoOf(err); sentinel(e) == nil {
				return e
			}
			continue
		}
		*a = try
		if ops != 0 {
			q.ex, q.ops = C.shim_qp_ex(p.ctx.t, q.c), uint32(ops)
		}
		return 0
	}
	if e == syscall.EINVAL && !known(t) {
		return syscall.EOPNOTSUPP // the type is what was invalid
	}
	return e
}

// known tells whether the type is one of those that queue pairs of a protection
// domain have.
func known(t verbs.QPType) bool {
	switch t {
	case verbs.QPTRC, verbs.QPTUC, verbs.QPTUD, verbs.QPTXRCSend:
		return true
	}
	return false
}

// xrc tells whether it has no receive queue, nor a completion queue for one, by
// its type. Drivers do not look (mlx5_post_recv locks the queue that is not there).
func (q *queuePair) xrc() bool {
	return q.init.Type == verbs.QPTXRCSend || q.init.Type == verbs.QPTXRCRecv
}

// named takes its number from C and is its label.
func (q *queuePair) named() string {
	q.num = uint32(q.c.qp_num)
	return fmt.Sprintf("QP 0x%06x of %s", q.num, q.ctx.info.Name)
}

// Context is the context it was made on.
func (q *queuePair) Context() verbs.Context { return q.ctx }

// Num is its number.
func (q *queuePair) Num() uint32 { return q.num }

// Type is its transport service.
func (q *queuePair) Type() verbs.QPType { return q.init.Type }

// UserData is the value given at creation.
func (q *queuePair) UserData() uint64 { return q.init.UserData }

// InitAttr is what it was made of.
func (q *queuePair) InitAttr() verbs.QPInitAttr { return q.init }

// Modify moves the state machine or sets attributes. The step is checked here
// first, from the state that a query reads: devices differ in what they refuse.
//
// Implements: ibv_modify_qp.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	const op = "ibv_modify_qp"
	a := attrToC(attr)
	var illegal error
	err := q.use(op, func() syscall.Errno {
		if known(q.init.Type) || q.init.Type == verbs.QPTXRCRecv {
			var now C.struct_vb_qp_attr
			if e := syscall.Errno(C.shim_query_qp(q.ctx.t, q.c, &now, C.VB_QP_STATE)); e != 0 {
				return e
			}
			from, to := verbs.QPState(now.qp_state), attr.State
			if mask&verbs.QPMState == 0 {
				to = from
			}
			if illegal = verbs.CheckTransition(q.init.Type, from, to, mask); illegal != nil {
				return 0
			}
		}
		return syscall.Errno(C.shim_modify_qp(q.ctx.t, q.c, &a, C.int(mask)))
	})
	if illegal != nil {
		return &verbs.OpError{Op: op, Object: q.label, Errno: syscall.EINVAL, Err: illegal}
	}
	return err
}

// fail moves it to ERR. It is for the CM, which tells what followed otherwise.
func (q *queuePair) fail() { _ = q.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState) }

// Query reads all attributes.
//
// Implements: ibv_query_qp.
func (q *queuePair) Query() (verbs.QPAttr, error) {
	var a C.struct_vb_qp_attr
	if err := q.use("ibv_query_qp", func() syscall.Errno {
		return syscall.Errno(C.shim_query_qp(q.ctx.t, q.c, &a, queryAll))
	}); err != nil {
		return verbs.QPAttr{}, err
	}
	return attrFromC(&a), nil
}

// Close destroys the queue pair, detaching it from its multicast groups: the
// kernel refuses one that is attached. [verbs.ErrBusy] while events are
// unacknowledged.
//
// Implements: ibv_destroy_qp.
func (q *queuePair) Close() error {
	return q.shut("ibv_destroy_qp", func() syscall.Errno {
		if e := q.detachAll(); e != 0 && !q.ctx.gone(e) {
			return e
		}
		return syscall.Errno(C.shim_destroy_qp(q.ctx.t, q.c))
	})
}
