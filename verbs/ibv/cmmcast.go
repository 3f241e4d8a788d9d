//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
// #include "calls_qp.h"
import "C"

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// membership is a multicast group that an identifier joined.
type membership struct {
	key      uint64 // the join's context in C
	userData uint64 // of JoinMulticast
	sendOnly bool
	attached bool
	gid      verbs.GID
	lid      uint16
}

// JoinMulticast joins a group.
//
// Implements: rdma_join_multicast.
func (id *cmID) JoinMulticast(group netip.Addr, userData uint64) error {
	return id.joinIP("rdma_join_multicast", group, &membership{userData: userData})
}

// JoinMulticastSendOnly joins a group to send to it. The queue pair is not attached.
//
// Implements: rdma_join_multicast_ex with RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER.
func (id *cmID) JoinMulticastSendOnly(group netip.Addr, userData uint64) error {
	return id.joinIP("rdma_join_multicast_ex", group, &membership{userData: userData, sendOnly: true})
}

func (id *cmID) joinIP(op string, group netip.Addr, m *membership) error {
	if !group.IsMulticast() {
		return id.refuse(op, "%v is no multicast group", group)
	}
	return id.join(op, groupAddr(group), m)
}

// groupAddr converts the address of a group for C. It is the same for all spellings: librdmacm and the kernel compare
// it byte by byte. A zone is left out: the identifier is bound to a port.
func groupAddr(group netip.Addr) C.struct_sockaddr_storage {
	return sockaddr(netip.AddrPortFrom(verbs.GIDFromAddr(group).Addr(), 0))
}

// JoinMulticastIB joins a group that is named by its GID.
//
// Implements: rdma_join_multicast, rdma_join_multicast_ex with AF_IB.
func (id *cmID) JoinMulticastIB(group verbs.IBAddr, sendOnly bool, userData uint64) error {
	const op = "rdma_join_multicast"
	if !group.GID.Addr().IsMulticast() {
		return id.refuse(op, "%v is no multicast group", group.GID)
	}
	return id.join(op, sockaddrIB(group), &membership{userData: userData, sendOnly: sendOnly})
}

func (id *cmID) join(op string, sa C.struct_sockaddr_storage, m *membership) error {
	if err := id.bound(op); err != nil {
		return err
	}
	m.key = lastID.Add(1)
	return id.call(op, func() (e syscall.Errno) {
		if id.groups[sa] != nil {
			return syscall.EADDRINUSE
		}
		if m.sendOnly {
			e = syscall.Errno(C.shim_join_send_only(id.t, id.c, &sa, C.uint64_t(m.key)))
		} else {
			e = syscall.Errno(C.shim_join(id.t, id.c, &sa, C.uint64_t(m.key)))
		}
		if e == 0 {
			if id.groups == nil {
				id.groups = map[C.struct_sockaddr_storage]*membership{}
			}
			id.groups[sa] = m
		}
		return e
	})
}

// joined completes the event of a join, and attaches the queue pair to the group unless the join has
// failed or is to send only. Under api.
//
// Implements: ucma_process_join of librdmacm/cma.c.
func (id *cmID) joined(key uint64, ev *verbs.CMEvent) syscall.Errno {
	for _, m := range id.groups {
		if m.key != key {
			continue
		}
		ev.UserData = m.userData
		if id.qp == nil || m.sendOnly || ev.Type == verbs.CMMulticastError {
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
	return id.leave(groupAddr(group))
}

// LeaveMulticastIB leaves a group that is named by its GID.
//
// Implements: rdma_leave_multicast with AF_IB.
func (id *cmID) LeaveMulticastIB(group verbs.IBAddr) error { return id.leave(sockaddrIB(group)) }

func (id *cmID) leave(sa C.struct_sockaddr_storage) error {
	return id.call("rdma_leave_multicast", func() syscall.Errno {
		m := id.groups[sa]
		if m == nil {
			return syscall.EADDRNOTAVAIL
		}
		if m.attached && id.qp != nil {
			_ = id.qp.DetachMcast(m.gid, m.lid) // like librdmacm, which ignores the error
		}
		delete(id.groups, sa)
		return syscall.Errno(C.shim_leave(id.t, id.c, &sa))
	})
}
