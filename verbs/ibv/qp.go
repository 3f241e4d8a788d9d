//go:build linux && cgo && !portable

package ibv

// #include "batch.h"
// #include "calls_qp.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// queuePair is a QP. Execute uses its C object without a lock; see the package comment.
type queuePair struct {
	node
	c    *C.struct_vb_qp
	num  uint32             // valid after c is gone
	ex   *C.struct_vb_qp_ex // nil without extended posting
	ops  uint32             // the operations that ex has
	init verbs.QPInitAttr   // with the granted capacities

	// moving serializes the steps, and guards last: the state that was set last. It may be an
	// earlier one than the device's: see lookup.
	moving sync.Mutex
	last   verbs.QPState
	// patience is what was set last, too; see Patience.
	patience struct{ timeout, retries uint8 }

	groups groups // attached multicast groups
}

var (
	_ verbs.QP      = (*queuePair)(nil)
	_ verbs.Patient = (*queuePair)(nil)
)

// The operations of extended posting, by what a device must have for them.
const (
	opsSend   = C.VB_QP_EX_WITH_SEND | C.VB_QP_EX_WITH_SEND_WITH_IMM
	opsRead   = C.VB_QP_EX_WITH_RDMA_READ
	opsBind   = C.VB_QP_EX_WITH_BIND_MW
	opsWrite  = C.VB_QP_EX_WITH_RDMA_WRITE | C.VB_QP_EX_WITH_RDMA_WRITE_WITH_IMM
	opsAtomic = C.VB_QP_EX_WITH_ATOMIC_CMP_AND_SWP | C.VB_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
	opsKey    = C.VB_QP_EX_WITH_LOCAL_INV | C.VB_QP_EX_WITH_SEND_WITH_INV
	// opsNew are newer (v46); an older library refuses the creation.
	opsNew = C.VB_QP_EX_WITH_FLUSH | C.VB_QP_EX_WITH_ATOMIC_WRITE
)

// sendOps returns the operations to request extended posting for: those of the type that the device's features permit.
// Not every driver looks at what is requested (providers/bnxt_re/verbs.c, bnxt_re_create_qp_ex).
func (c *deviceContext) sendOps(t verbs.QPType) (ops uint64) {
	ops = opsSend
	if t == verbs.QPTUD {
		return ops
	}
	if ops |= opsWrite; c.caps&verbs.CapMemMgt != 0 {
		ops |= opsKey
	}
	if c.caps&(verbs.CapMemWindow|verbs.CapMemWindow2A|verbs.CapMemWindow2B) != 0 {
		ops |= opsBind
	}
	if c.caps&(verbs.CapFlushGlobal|verbs.CapFlushPersistent) != 0 {
		ops |= C.VB_QP_EX_WITH_FLUSH
	}
	if t == verbs.QPTUC {
		return ops
	}
	if ops |= opsRead; c.atomics {
		ops |= opsAtomic
	}
	if c.caps&verbs.CapAtomicWrite != 0 {
		ops |= C.VB_QP_EX_WITH_ATOMIC_WRITE
	}
	return ops
}

// sendOpsCandidates returns the sets of operations to try, the best first; 0 is without extended posting.
// The library, or the driver, may lack what the device has, and only a refused creation shows it. Without windows,
// BIND_MW and LOCAL_INV are left out of each set: libmlx5 reserves room for them in each request of the send queue.
func (c *deviceContext) sendOpsCandidates(t verbs.QPType, windows bool) []uint64 {
	if !known(t) {
		return []uint64{0}
	}
	const keys = opsBind | C.VB_QP_EX_WITH_LOCAL_INV // not of hns
	ops := c.sendOps(t)
	if !windows {
		ops &^= keys
	}
	return slices.Compact([]uint64{ops, ops &^ C.VB_QP_EX_WITH_ATOMIC_WRITE, ops &^ opsNew, ops &^ (opsNew | keys), 0})
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
	err := c.make(op, &q.node, parents, &c.counts.QP, func() (string, syscall.Errno) {
		a.qp_context = C.shim_id(C.uint64_t(c.ids.add(q)))
		if e := q.create(p, &a, init); e != 0 {
			return "", e
		}
		init.Cap = capFromC(&a.cap)
		q.init = *init
		return q.named(), 0
	})
	if errors.Is(err, verbs.ErrInvalid) || errors.Is(err, verbs.ErrNotSupported) {
		if has, e := c.qpTypes(); e == nil && !slices.Contains(has, init.Type) {
			err = opError(op, c.label, syscall.EOPNOTSUPP, "%w: queue pairs of type %v; the device has %v", verbs.ErrNotSupported, init.Type, has)
		}
	}
	if err != nil {
		return nil, limited(err, "a queue pair of type %v: %+v", init.Type, init.Cap)
	}
	return q, nil
}

// create tries the sets of sendOpsCandidates in order. Operations that a driver lacks are EOPNOTSUPP. After EINVAL only
// the creation without extended posting is left to try: with fewer operations the driver might make smaller requests
// (providers/mlx5/verbs.c, _sq_overhead), and take capacities that the others do not fit in. Last, a queue pair without
// receives gets one: not every driver makes it without (Linux erdma_verbs.c, erdma_qp_validate_cap).
func (q *queuePair) create(p *protectionDomain, a *C.struct_vb_qp_init_attr, init *verbs.QPInitAttr) syscall.Errno {
	e, t := syscall.Errno(0), init.Type
	for _, ops := range p.ctx.sendOpsCandidates(t, init.Windows) {
		if e == syscall.EINVAL && ops != 0 {
			continue
		}
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
			q.ex = C.shim_qp_ex(p.ctx.t, q.c)
			if q.ops = uint32(C.batch_ops(q.ex, C.uint32_t(ops))); q.ops == 0 {
				q.ex = nil
			}
		}
		return 0
	}
	if e == syscall.EINVAL && a.cap.max_recv_wr == 0 && a.srq == nil && t != verbs.QPTXRCSend {
		one := *a
		one.cap.max_recv_wr, one.cap.max_recv_sge = 1, 1
		if q.create(p, &one, init) == 0 {
			*a = one
			return 0
		}
	}
	return e
}

// known reports whether queue pairs of the type can be made in a protection domain.
func known(t verbs.QPType) bool {
	switch t {
	case verbs.QPTRC, verbs.QPTUC, verbs.QPTUD, verbs.QPTXRCSend:
		return true
	}
	return false
}

// xrc reports whether the queue pair's type has neither a receive queue nor a completion queue
// for it. Drivers do not check (mlx5_post_recv locks the queue that is not there).
func (q *queuePair) xrc() bool {
	return q.init.Type == verbs.QPTXRCSend || q.init.Type == verbs.QPTXRCRecv
}

// named reads the number from C and returns the label.
func (q *queuePair) named() string {
	q.num = uint32(q.c.qp_num)
	return fmt.Sprintf("QP 0x%06x of %s", q.num, q.ctx.info.Name)
}

// Context returns the context of the queue pair.
func (q *queuePair) Context() verbs.Context { return q.ctx }

// Num returns the number.
func (q *queuePair) Num() uint32 { return q.num }

// Type returns the transport service.
func (q *queuePair) Type() verbs.QPType { return q.init.Type }

// UserData returns the value given at creation.
func (q *queuePair) UserData() uint64 { return q.init.UserData }

// InitAttr returns the creation attributes.
func (q *queuePair) InitAttr() verbs.QPInitAttr { return q.init }

// Modify moves the state machine or sets attributes. It checks the step first, because devices
// differ in what they refuse. A query is a command of the firmware as the step is one, so the
// state is the one that was set last, where the device cannot have left it.
//
// Implements: ibv_modify_qp.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	const op = "ibv_modify_qp"
	a := attrToC(attr)
	var illegal error
	err := q.use(op, func() syscall.Errno {
		q.moving.Lock()
		defer q.moving.Unlock()
		checked := known(q.init.Type) || q.init.Type == verbs.QPTXRCRecv
		if checked {
			if e := q.lookup(attr, mask); e != 0 {
				return e
			}
			if illegal = q.check(attr, mask); illegal != nil {
				return 0
			}
		}
		e := q.modify(&a, C.int(mask))
		if e == syscall.EINVAL && checked && q.query() == 0 { // in ERR from RTR or INIT, by itself
			illegal = q.check(attr, mask)
		}
		return e
	})
	if illegal != nil {
		return &verbs.OpError{Op: op, Object: q.label, Errno: syscall.EINVAL, Err: illegal}
	}
	return err
}

// check returns the error of a step from the state q.last. With moving.
func (q *queuePair) check(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	to := attr.State
	if mask&verbs.QPMState == 0 {
		to = q.last
	}
	return verbs.CheckTransition(q.init.Type, q.last, to, mask)
}

// lookup queries the state if the step depends on it and the device may have left the one that was
// set. It leaves RTS and SQD: for ERR, and for SQE. The steps to RESET and ERR are legal from where
// it goes. (It also leaves INIT and RTR for ERR; steps from there are refused by all, because the
// kernel or the firmware has the attributes to check.) A queue pair of several handles is moved by
// others, too. With moving.
func (q *queuePair) lookup(attr *verbs.QPAttr, mask verbs.QPAttrMask) syscall.Errno {
	ends := mask&verbs.QPMState != 0 && (attr.State == verbs.QPSReset || attr.State == verbs.QPSErr)
	if q.init.Type != verbs.QPTXRCRecv && (ends || q.last < verbs.QPSRTS || q.last == verbs.QPSErr) {
		return 0
	}
	return q.query()
}

// query sets q.last to the device's state. With moving.
func (q *queuePair) query() syscall.Errno {
	var now C.struct_vb_qp_attr
	e := syscall.Errno(C.shim_query_qp(q.ctx.t, q.c, &now, C.VB_QP_STATE))
	if e == 0 {
		q.last = verbs.QPState(now.qp_state)
	}
	return e
}

// modify makes the call, and records the state. With moving.
func (q *queuePair) modify(a *C.struct_vb_qp_attr, mask C.int) syscall.Errno {
	e := syscall.Errno(C.shim_modify_qp(q.ctx.t, q.c, a, mask))
	if e != 0 {
		return e
	}
	if mask&C.VB_QP_STATE != 0 {
		q.last = verbs.QPState(a.qp_state)
	}
	if mask&C.VB_QP_TIMEOUT != 0 {
		q.patience.timeout = uint8(a.timeout)
	}
	if mask&C.VB_QP_RETRY_CNT != 0 {
		q.patience.retries = uint8(a.retry_cnt)
	}
	return 0
}

// Patience returns the ACK timeout code and the retry count that were set. See [verbs.Patient].
func (q *queuePair) Patience() (timeout, retries uint8) {
	q.moving.Lock()
	defer q.moving.Unlock()
	return q.patience.timeout, q.patience.retries
}

// fail moves the queue pair to ERR. The CM calls it and reports the consequence by other means.
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

// Close destroys the queue pair after detaching it from its multicast groups: the kernel refuses
// an attached one. [verbs.ErrBusy] while events are unacknowledged.
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
