//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
// #include "calls_qp.h"
import "C"

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// cmRNRTimer is 0.64 ms. The kernel's RDMA CM takes code 0, which is 655 ms for
// each RNR NAK (rdma_connect(3)).
const cmRNRTimer = 12

// oldBits are attribute bits of old kernels that libibverbs never had (libibverbs/verbs.h,
// IBV_QP_DEST_QPN and the following bits).
const oldBits = 0xf << 21

// step moves the queue pair to a state with the attributes from the connection manager. change
// may alter them.
//
// Implements: rdma_init_qp_attr and ibv_modify_qp, as ucma_modify_qp_rtr and ucma_modify_qp_rts
// of librdmacm/cma.c.
func (id *cmID) step(q *queuePair, to verbs.QPState, change func(a *C.struct_vb_qp_attr, mask *C.int)) syscall.Errno {
	a, mask, errno := id.attributes(to)
	if errno != 0 {
		return errno
	}
	if change != nil {
		change(&a, &mask)
	}
	errno = syscall.EBADF // for the case that it is not called: the user may have closed the queue pair
	_ = q.use("ibv_modify_qp", func() syscall.Errno {
		q.moving.Lock()
		defer q.moving.Unlock()
		errno = q.modify(&a, mask)
		return errno
	})
	return errno
}

// attributes returns the connection manager's attributes for a step, with this end's own timers. The
// kernel's ACK timeout is not used. It is what SetAckTimeout has set, without the device's delay
// (Linux cma.c, rdma_init_qp_attr), or else at the connecting end the peer's delay and the path's
// lifetime, and at the accepting end what the request asks for (cm.c, cm_rep_handler and
// cm_init_av_by_path), which is the lifetime of the path record on InfiniBand, whatever was set.
func (id *cmID) attributes(to verbs.QPState) (a C.struct_vb_qp_attr, mask C.int, errno syscall.Errno) {
	a.qp_state = C.vb_enum(to)
	errno = syscall.Errno(C.shim_init_qp_attr(id.t, id.c, &a, &mask))
	mask &^= oldBits
	if mask&C.VB_QP_MIN_RNR_TIMER != 0 {
		a.min_rnr_timer = cmRNRTimer
	}
	if mask&C.VB_QP_TIMEOUT != 0 { // InfiniBand and RoCE; iWARP has none
		var delay uint8
		if delay, errno = id.ackDelay(); errno != 0 {
			return a, mask, errno
		}
		a.timeout = C.uint8_t(max(id.timeout, delay))
	}
	return a, mask, errno
}

// InitQPAttr returns the attributes with which the program moves a queue pair of its own. In port space UDP the
// kernel's for INIT would be those of all steps (cma.c, rdma_init_qp_attr); the masks are librdmacm's
// (ucma_init_ud_qp). For a connection they would be so too before there is one, which is refused here.
//
// Implements: rdma_init_qp_attr.
func (id *cmID) InitQPAttr(to verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	const op = "rdma_init_qp_attr"
	if err := id.bound(op); err != nil {
		return verbs.QPAttr{}, 0, err
	}
	id.api.Lock()
	defer id.api.Unlock()
	connected := id.state == idAsked || id.state == idReplied || id.state == idConnected
	if to < verbs.QPSInit || to > verbs.QPSRTS || to != verbs.QPSInit && !connected && !id.datagrams() {
		return verbs.QPAttr{}, 0, id.refuse(op, "there are no attributes for %v now", to)
	}
	var a C.struct_vb_qp_attr
	var mask C.int
	if err := id.locked(op, func() (e syscall.Errno) {
		a, mask, e = id.attributes(to)
		return e
	}); err != nil {
		return verbs.QPAttr{}, 0, err
	}
	switch {
	case id.datagrams() && to == verbs.QPSRTR:
		mask = C.VB_QP_STATE
	case id.datagrams() && to == verbs.QPSRTS:
		mask = C.VB_QP_STATE | C.VB_QP_SQ_PSN
	case mask&C.VB_QP_RETRY_CNT != 0 && id.state != idAsked:
		a.retry_cnt = C.uint8_t(id.retries)
	}
	return attrFromC(&a), verbs.QPAttrMask(mask), nil
}

// ackDelay returns the delay of the identifier's device: a queue pair gets no shorter timeout. A queue
// pair of the program's own may be on any context, so the device is asked through librdmacm's.
func (id *cmID) ackDelay() (uint8, syscall.Errno) {
	if id.qp != nil {
		return id.qp.ctx.ackDelay, 0
	}
	if id.c.verbs == nil {
		return 0, 0
	}
	t, err := id.p.libs.verbs()
	if err != nil {
		return 0, syscall.ENOSYS
	}
	var d C.struct_vb_device_attr_ex
	errno := syscall.Errno(C.shim_query_device(t, id.c.verbs, &d))
	return uint8(d.orig_attr.local_ca_ack_delay), errno
}

// ready moves the queue pair from INIT to RTS. A depth of maxDepth keeps the agreed one. This end
// decides the retry count of its own requests, because the kernel of an accepting end takes it from
// the peer. Under api.
//
// The access that the peer gets is known only now. librdmacm sets it by moving the queue pair from
// INIT to INIT first. The step to RTR takes it too (IBTA 11.2.5.2; mlx5 has RRE, RAE and RWE in
// opt_mask[MLX5_QP_STATE_INIT][MLX5_QP_STATE_RTR], Linux drivers/infiniband/hw/mlx5/qp.c), which saves
// a command of the firmware.
func (id *cmID) ready(resources, depth uint8) syscall.Errno {
	init, given, e := id.attributes(verbs.QPSInit)
	if e == 0 && (init.port_num != id.init.port_num || init.pkey_index != id.init.pkey_index) {
		e = id.step(id.qp, verbs.QPSInit, nil) // RTR cannot change the port
	}
	if e == 0 {
		e = id.step(id.qp, verbs.QPSRTR, func(a *C.struct_vb_qp_attr, mask *C.int) {
			if given&C.VB_QP_ACCESS_FLAGS != 0 {
				a.qp_access_flags, *mask = init.qp_access_flags, *mask|C.VB_QP_ACCESS_FLAGS
			}
			if resources != maxDepth {
				a.max_dest_rd_atomic = C.uint8_t(resources)
			}
			if g := &a.ah_attr.grh; a.ah_attr.is_global != 0 && g.traffic_class == 0 { // the request had none, or cannot
				g.traffic_class = C.uint8_t(id.tos)
			}
		})
	}
	if e == 0 {
		e = id.step(id.qp, verbs.QPSRTS, func(a *C.struct_vb_qp_attr, _ *C.int) {
			if depth != maxDepth {
				a.max_rd_atomic = C.uint8_t(depth)
			}
			a.retry_cnt = C.uint8_t(id.retries) // not in the mask of iWARP, which has none
		})
	}
	return e
}

// CreateQP makes a queue pair on pd and moves it to INIT, in port space UDP to RTS. It does not
// use rdma_create_qp, which needs a protection domain of librdmacm's own context. So the queue
// pair has extended posting and belongs to the user's context.
//
// Implements: rdma_create_qp (init_ece, ucma_init_conn_qp, ucma_init_ud_qp, set_local_ece).
func (id *cmID) CreateQP(pd verbs.PD, init *verbs.QPInitAttr) error {
	const op = "rdma_create_qp"
	id.api.Lock()
	defer id.api.Unlock()
	switch {
	case id.isClosed():
		return opError(op, id.label, syscall.EBADF, "%w", verbs.ErrClosed)
	case init.Type != id.kind:
		return id.refuse(op, "a queue pair of type %v, the identifier is for %v", init.Type, id.kind)
	case id.qp != nil:
		return id.refuse(op, "it has %v already", id.qp)
	}
	q, err := id.newQP(op, pd, init)
	if err != nil {
		return err
	}
	own, e := id.initECE(q)
	if e == 0 {
		e = id.step(q, verbs.QPSInit, func(a *C.struct_vb_qp_attr, _ *C.int) { id.init = *a })
	}
	if e == 0 {
		own, e = id.tellECE(q, own)
	}
	if e == 0 && id.datagrams() {
		if err = q.Modify(&verbs.QPAttr{State: verbs.QPSRTR}, verbs.QPMState); err == nil {
			err = q.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState|verbs.QPMSQPSN)
		}
	}
	if e != 0 {
		err = id.failed(op, q.ctx, e)
	}
	if err != nil {
		return errors.Join(err, q.Close())
	}
	id.ece = own
	id.mu.Lock()
	defer id.mu.Unlock()
	id.qp = q
	return nil
}

// newQP makes a queue pair: of type XRC_RECV in a domain, others in a protection domain, on the identifier's device.
func (id *cmID) newQP(op string, pd verbs.PD, init *verbs.QPInitAttr) (*queuePair, error) {
	if id.kind == verbs.QPTXRCRecv {
		x, ok := init.XRCD.(*xrcDomain)
		if !ok || x == nil || x.ctx.p != id.p || x.ctx.info.Name != id.Device() {
			return nil, id.refuse(op, "%v is not an XRC domain of device %q", init.XRCD, id.Device())
		}
		return x.createQP(op, init)
	}
	own, ok := pd.(*protectionDomain)
	if !ok || own == nil || own.ctx.p != id.p || own.ctx.info.Name != id.Device() {
		return nil, id.refuse(op, "%v is not a protection domain of device %q", pd, id.Device())
	}
	return own.createQP(op, init)
}

// Close destroys the queue pair, then the identifier, which disconnects or
// rejects the peer. [verbs.ErrBusy] while events are not acknowledged, of the
// identifier or its queue pair.
//
// Implements: rdma_destroy_qp, rdma_destroy_id.
func (id *cmID) Close() error {
	const op = "rdma_destroy_id"
	id.api.Lock()
	defer id.api.Unlock()
	r := &id.p.cmIDs
	r.mu.Lock()
	closed, unacked := id.closed, id.unacked
	if id.qp != nil {
		unacked += int(id.qp.unacked.Load())
	}
	if unacked == 0 {
		delete(r.m, id.num) // later events are dropped
	}
	r.mu.Unlock()
	switch {
	case closed:
		return nil
	case unacked > 0:
		return opError(op, id.label, syscall.EBUSY, "%w: %d events of it or its queue pair are not acknowledged", verbs.ErrBusy, unacked)
	}
	err := id.destroy(op)
	if err != nil {
		r.mu.Lock()
		r.m[id.num] = id
		r.mu.Unlock()
		return err
	}
	id.forget()
	return nil
}

// destroy is the part of Close that calls C.
func (id *cmID) destroy(op string) error {
	if err := id.destroyQP(op); err != nil {
		return err
	}
	if id.c == nil {
		return nil
	}
	return failed(op, id.label, syscall.Errno(C.shim_destroy_id(id.t, id.c)))
}

// DestroyQP destroys the queue pair, if there is one.
//
// Implements: rdma_destroy_qp.
func (id *cmID) DestroyQP() error {
	id.api.Lock()
	defer id.api.Unlock()
	return id.destroyQP("rdma_destroy_qp")
}

// destroyQP destroys the queue pair, if there is one. Under api.
func (id *cmID) destroyQP(op string) error {
	if id.qp == nil {
		return nil
	}
	if err := id.qp.Close(); err != nil {
		return fmt.Errorf("%s of %s: %w", op, id.label, err)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.qp = nil
	return nil
}
