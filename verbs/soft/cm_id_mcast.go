package soft

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// membership is a join of a multicast group.
type membership struct {
	gid      verbs.GID
	sendOnly bool // the queue pair is not attached for it
}

// JoinMulticast joins a multicast group. MULTICAST_JOIN reports the address handle attributes; on
// RoCE joining needs no manager. It attaches the identifier's queue pair, if there is one; if that fails, MULTICAST_ERROR reports
// it. A group joined twice must be left twice. It waits for a running Progress call of the
// device.
//
// Implements: rdma_join_multicast; cma_iboe_join_multicast (kernel cma.c), which accepts an
// identifier that is bound or resolved; here also one that listens.
func (id *cmID) JoinMulticast(group netip.Addr, userData uint64) error {
	return id.joinGroup("rdma_join_multicast", group, userData, false)
}

// JoinMulticastSendOnly is JoinMulticast that attaches no queue pair.
//
// Implements: rdma_join_multicast_ex with RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER; ucma_process_join (librdmacm
// cma.c), which does not attach.
func (id *cmID) JoinMulticastSendOnly(group netip.Addr, userData uint64) error {
	return id.joinGroup("rdma_join_multicast_ex", group, userData, true)
}

func (id *cmID) joinGroup(op string, group netip.Addr, userData uint64, sendOnly bool) error {
	if !group.IsMulticast() {
		return id.refuse(op, "%v is no multicast address", group)
	}
	return id.joinGID(op, verbs.GIDFromAddr(group), userData, sendOnly)
}

func (id *cmID) joinGID(op string, gid verbs.GID, userData uint64, sendOnly bool) error {
	id.api.Lock()
	defer id.api.Unlock()
	if !id.datagrams() {
		return id.refuse(op, "port space 0x%04x has no datagrams", uint16(id.ps))
	}
	states := []idState{idBound, idListening, idAddrResolved, idRouteResolved}
	return id.exclusive(op, states, func(time.Duration) error {
		path := wire.To(gid)
		ev := verbs.CMEvent{Type: verbs.CMMulticastJoin, UserData: userData, UD: verbs.UDParam{
			AH: id.dev.wayTo(&path, id.tos), QPNum: verbs.McastQPN, QKey: verbs.UDPQKey,
		}}
		if id.qp != nil && !sendOnly && id.dev.attachMcast(id.qp, gid) != nil { // too many groups or queue pairs
			ev.Type, ev.Status = verbs.CMMulticastError, -int(syscall.ENOMEM)
		} else {
			id.groups = append(id.groups, membership{gid, sendOnly})
		}
		id.report(ev)
		return nil
	})
}

// LeaveMulticast leaves a group. It returns EADDRNOTAVAIL when the group was not joined. It waits
// for a running Progress call of the device. Close leaves all groups.
//
// Implements: rdma_leave_multicast.
func (id *cmID) LeaveMulticast(group netip.Addr) error {
	return id.leaveGID(verbs.GIDFromAddr(group))
}

func (id *cmID) leaveGID(gid verbs.GID) error {
	const op = "rdma_leave_multicast"
	id.api.Lock()
	defer id.api.Unlock()
	left := false
	if err := id.exclusive(op, []idState{idBound, idListening, idAddrResolved, idRouteResolved, idConnecting, idEstablished, idEnded}, func(time.Duration) error {
		left = id.leaveGroup(gid)
		return nil
	}); err != nil {
		return err
	}
	if !left {
		return opError(op, id.String(), syscall.EADDRNOTAVAIL, "%w: %v was not joined", verbs.ErrInvalid, gid)
	}
	return nil
}

// leaveGroup undoes the latest join of a group, and detaches the queue pair with the last that attached it. The
// caller holds the device's token.
func (id *cmID) leaveGroup(gid verbs.GID) bool {
	for i := len(id.groups) - 1; i >= 0; i-- {
		m := id.groups[i]
		if m.gid != gid {
			continue
		}
		id.groups = slices.Delete(id.groups, i, i+1)
		if id.qp != nil && !m.sendOnly && !slices.Contains(id.groups, m) {
			id.dev.detachMcast(id.qp, gid)
		}
		return true
	}
	return false
}
