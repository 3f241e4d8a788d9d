//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
// #include "calls_qp.h"
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
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
func (id *cmID) step(q *queuePair, to verbs.QPState, change func(a *C.struct_vb_qp_attr, mask C.int)) syscall.Errno {
	var a C.struct_vb_qp_attr
	var mask C.int
	a.qp_state = C.vb_enum(to)
	if e := syscall.Errno(C.shim_init_qp_attr(id.t, id.c, &a, &mask)); e != 0 {
		return e
	}
	mask &^= oldBits
	if change != nil {
		change(&a, mask)
	}
	errno := syscall.EBADF // for the case that it is not called: the user may have closed the queue pair
	_ = q.use("ibv_modify_qp", func() syscall.Errno {
		errno = syscall.Errno(C.shim_modify_qp(q.ctx.t, q.c, &a, mask))
		return errno
	})
	return errno
}

// ackTimeout returns the code for the queue pair: the one from SetAckTimeout, else the kernel's.
// The kernel's may come from the peer's request (Linux cm.c, cm_init_av_by_path), so it is
// bounded. It is at least the device's own delay: the kernel adds that to the value sent to the
// peer, but not to the value set here (cma.c, rdma_init_qp_attr).
func (id *cmID) ackTimeout(kernels uint8) uint8 {
	code := id.timeout
	if code == 0 {
		code = kernels
		if code == 0 || code > verbs.MaxPeerAckTimeout { // 0 means no limit
			code = verbs.MaxPeerAckTimeout
		}
	}
	return max(code, id.qp.ctx.ackDelay)
}

// ready moves the queue pair from INIT to RTS. A depth of maxDepth keeps the agreed one. This end
// decides the timeout and the retry count of its own requests, because the kernel of an accepting
// end takes them from the peer. Under api.
func (id *cmID) ready(resources, depth uint8) syscall.Errno {
	e := id.step(id.qp, verbs.QPSInit, nil)
	if e == 0 {
		e = id.step(id.qp, verbs.QPSRTR, func(a *C.struct_vb_qp_attr, mask C.int) {
			if resources != maxDepth {
				a.max_dest_rd_atomic = C.uint8_t(resources)
			}
			if mask&C.VB_QP_MIN_RNR_TIMER != 0 {
				a.min_rnr_timer = cmRNRTimer
			}
		})
	}
	if e == 0 {
		e = id.step(id.qp, verbs.QPSRTS, func(a *C.struct_vb_qp_attr, _ C.int) {
			if depth != maxDepth {
				a.max_rd_atomic = C.uint8_t(depth)
			}
			// The mask includes them on InfiniBand and RoCE; iWARP has neither.
			a.timeout, a.retry_cnt = C.uint8_t(id.ackTimeout(uint8(a.timeout))), C.uint8_t(id.retries)
		})
	}
	return e
}

// CreateQP makes a queue pair on pd and moves it to INIT, in port space UDP to RTS. It does not
// use rdma_create_qp, which needs a protection domain of librdmacm's own context. So the queue
// pair has extended posting and belongs to the user's context.
//
// Implements: rdma_create_qp (ucma_init_conn_qp, ucma_init_ud_qp).
func (id *cmID) CreateQP(pd verbs.PD, init *verbs.QPInitAttr) error {
	const op = "rdma_create_qp"
	id.api.Lock()
	defer id.api.Unlock()
	own, ok := pd.(*protectionDomain)
	switch {
	case id.isClosed():
		return opError(op, id.label, syscall.EBADF, "%w", verbs.ErrClosed)
	case !ok || own == nil || own.ctx.p != id.p:
		return id.refuse(op, "%v is not a protection domain of this provider", pd)
	case id.Device() != own.ctx.info.Name:
		return id.refuse(op, "the identifier is on device %q, %v is not", id.Device(), pd)
	case id.qp != nil:
		return id.refuse(op, "it has %v already", id.qp)
	}
	q, err := own.createQP(op, init)
	if err != nil {
		return err
	}
	e := id.step(q, verbs.QPSInit, nil)
	if e == 0 && id.datagrams() {
		if err = q.Modify(&verbs.QPAttr{State: verbs.QPSRTR}, verbs.QPMState); err == nil {
			err = q.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState|verbs.QPMSQPSN)
		}
	}
	if e != 0 {
		err = id.failed(op, own.ctx, e)
	}
	if err != nil {
		return errors.Join(err, q.Close())
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.qp = q
	return nil
}

// membership is a multicast group that an identifier joined.
type membership struct {
	key      uint64 // the join's context in C
	userData uint64 // of JoinMulticast
	attached bool
	gid      verbs.GID
	lid      uint16
}

// JoinMulticast joins a group.
//
// Implements: rdma_join_multicast.
func (id *cmID) JoinMulticast(group netip.Addr, userData uint64) error {
	const op = "rdma_join_multicast"
	if err := id.bound(op); err != nil {
		return err
	}
	if !group.IsMulticast() {
		return id.refuse(op, "%v is no multicast group", group)
	}
	sa, key := sockaddr(netip.AddrPortFrom(group, 0)), lastID.Add(1)
	return id.call(op, func() syscall.Errno {
		if id.groups[group] != nil {
			return syscall.EADDRINUSE
		}
		e := syscall.Errno(C.shim_join(id.t, id.c, &sa, C.uint64_t(key)))
		if e == 0 {
			if id.groups == nil {
				id.groups = map[netip.Addr]*membership{}
			}
			id.groups[group] = &membership{key: key, userData: userData}
		}
		return e
	})
}

// joined completes the event of a join, and attaches the queue pair to the group unless the join has
// failed. Under api.
//
// Implements: ucma_process_join of librdmacm/cma.c.
func (id *cmID) joined(key uint64, ev *verbs.CMEvent) syscall.Errno {
	for _, m := range id.groups {
		if m.key != key {
			continue
		}
		ev.UserData = m.userData
		if id.qp == nil || ev.Type == verbs.CMMulticastError {
			return 0
		}
		m.gid, m.lid = ev.UD.AH.DGID, ev.UD.AH.DLID
		var e *verbs.OpError
		if err := id.qp.AttachMcast(m.gid, m.lid); errors.As(err, &e) {
			return e.Errno
		}
		m.attached = true
	}
	return 0
}

// LeaveMulticast leaves a group; EADDRNOTAVAIL when it was not joined.
//
// Implements: rdma_leave_multicast.
func (id *cmID) LeaveMulticast(group netip.Addr) error {
	const op = "rdma_leave_multicast"
	sa := sockaddr(netip.AddrPortFrom(group, 0))
	return id.call(op, func() syscall.Errno {
		m := id.groups[group]
		if m == nil {
			return syscall.EADDRNOTAVAIL
		}
		if m.attached && id.qp != nil {
			_ = id.qp.DetachMcast(m.gid, m.lid) // like librdmacm, which ignores the error
		}
		delete(id.groups, group)
		return syscall.Errno(C.shim_leave(id.t, id.c, &sa))
	})
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
