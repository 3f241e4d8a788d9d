package soft

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Addresses of InfiniBand name a port by its GID, and a service by its ID. A GID is an IP address here, so below these
// calls an identifier has IP addresses; but its requests have no header, and its listeners get those without one.

// BindIB is Bind with an address of InfiniBand. Errors: EPROTONOSUPPORT when the port space of the service ID is not the
// identifier's, ENODEV when no device has the GID, or the partition.
//
// Implements: rdma_bind_addr with AF_IB.
func (id *cmID) BindIB(local verbs.IBAddr) error {
	const op = "rdma_bind_addr"
	id.api.Lock()
	defer id.api.Unlock()
	err := id.inState(op, idIdle)
	if err == nil {
		if err = id.bindIB(local, id.bindSocket); err != nil {
			err = id.failed(op, err)
		}
	}
	return err
}

// bindIB binds to an address by bind or bindSocket. The caller holds api.
func (id *cmID) bindIB(local verbs.IBAddr, bind func(netip.AddrPort) error) error {
	ps, ok := spaceOf(id.ps, &local)
	switch {
	case !ok:
		return withErrno(syscall.EPROTONOSUPPORT, "%w: %v in port space 0x%04x", verbs.ErrInvalid, local, uint16(id.ps))
	case local.PKey|fullMember != wire.DefaultPKey:
		return withErrno(syscall.ENODEV, "%w: none has partition 0x%04x", verbs.ErrUnknownDevice, local.PKey)
	}
	had := id.family
	id.setIB(true, ps, local)
	id.family = family{set: true} // requests have no IP version
	if err := bind(netip.AddrPortFrom(addrOf(local.GID), uint16(local.SID&local.SIDMask))); err != nil {
		id.setIB(false, id.ps, verbs.IBAddr{})
		id.family = had
		return err
	}
	return nil
}

// fullMember is the bit of a P_Key that is not part of the partition.
const fullMember = 1 << 15

// addrOf returns a GID as an IP address; for the zero GID, any device, an invalid one.
func addrOf(g verbs.GID) netip.Addr {
	if g == (verbs.GID{}) {
		return netip.Addr{}
	}
	return g.Addr()
}

// setIB sets whether the identifier has addresses of InfiniBand. The caller holds api.
func (id *cmID) setIB(ib bool, ps verbs.PortSpace, local verbs.IBAddr) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.ib, id.ps, id.localIB = ib, ps, local
}

// spaceOf returns the port space of an address of an identifier of port space ps.
//
// Implements: cma_select_ib_ps (kernel cma.c).
func spaceOf(ps verbs.PortSpace, a *verbs.IBAddr) (verbs.PortSpace, bool) {
	mask := a.SIDMask & verbs.PortSpaceBits
	for _, space := range []verbs.PortSpace{verbs.PSIB, verbs.PSTCP, verbs.PSUDP} {
		if (ps == verbs.PSIB || ps == space) && a.SID&mask == cm.ServiceID(space, 0)&mask {
			return space, true
		}
	}
	return 0, false
}

// ResolveIB is ResolveAddr with addresses of InfiniBand. The service is that of dst, whatever its port space.
//
// Implements: rdma_resolve_addr with AF_IB.
func (id *cmID) ResolveIB(src, dst verbs.IBAddr, timeout time.Duration) error {
	const op = "rdma_resolve_addr"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idIdle, idBound); err != nil {
		return err
	}
	to := addrOf(dst.GID)
	s, d, _ := id.look()
	switch {
	case anywhere(to):
		return id.refuse(op, "%v is no destination", dst)
	case s == idIdle:
		if src == (verbs.IBAddr{}) {
			src.PKey = dst.PKey // as cma_bind_addr (kernel cma.c)
		}
		if err := id.bindIB(src, id.bind); err != nil {
			return id.failed(op, err)
		}
		_, d, _ = id.look()
	case !id.ib:
		return id.refuse(op, "the identifier has an IP address")
	}
	id.mu.Lock()
	id.peerIB = dst
	id.mu.Unlock()
	return id.resolveFrom(d, op, netip.AddrPortFrom(to, dst.Port()))
}

// inheritIB gives the identifier of a request the addresses of InfiniBand of its listener. The caller holds the device's
// token.
//
// Implements: cma_save_ib_info (kernel cma.c).
func (id *cmID) inheritIB(listener *cmID, e *cm.Event) {
	if id.ib = listener.ib; !id.ib {
		return
	}
	id.localIB, id.peerIB = verbs.IBAddr{PKey: listener.localIB.PKey}, verbs.IBAddr{GID: id.path.Peer, PKey: listener.localIB.PKey}
	if e.REQ != nil {
		p := &e.REQ.Primary
		id.localIB.PKey, id.localIB.FlowInfo, id.peerIB.PKey, id.peerIB.FlowInfo = e.REQ.PKey, p.FlowLabel, e.REQ.PKey, p.FlowLabel
	}
}

// IBAddrs returns the addresses of InfiniBand.
//
// Implements: rdma_get_local_addr, rdma_get_peer_addr with AF_IB.
func (id *cmID) IBAddrs() (local, peer verbs.IBAddr) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !id.ib {
		return local, peer
	}
	local = id.localIB
	local.SID, local.SIDMask = cm.ServiceID(id.ps, id.local.Port()), verbs.AllServiceBits
	if local.GID = (verbs.GID{}); !anywhere(id.local.Addr()) {
		local.GID = verbs.GIDFromAddr(id.local.Addr())
	}
	return local, id.peerIB
}

// service returns the service ID to ask for. The caller holds api.
//
// Implements: rdma_get_service_id (kernel cma.c).
func (id *cmID) service() uint64 {
	if id.ib {
		return id.peerIB.SID
	}
	return cm.ServiceID(id.ps, id.peer.Port())
}

// header returns the header of a request's private data, and headerSize its length.
//
// Implements: cma_user_data_offset and cma_format_hdr (kernel cma.c).
func (id *cmID) header() []byte {
	var head [cm.PrivateREQ]byte
	cm.ConnHeader{SrcPort: id.port, Src: id.local.Addr(), Dst: id.peer.Addr()}.Put(&head)
	n := id.headerSize()
	return head[:n:n]
}

func (id *cmID) headerSize() int {
	if id.ib {
		return 0
	}
	return cm.ConnHeaderSize
}

// JoinMulticastIB joins a group that is named by its GID.
//
// Implements: rdma_join_multicast, rdma_join_multicast_ex with AF_IB.
func (id *cmID) JoinMulticastIB(group verbs.IBAddr, sendOnly bool, userData uint64) error {
	const op = "rdma_join_multicast"
	if !group.GID.Addr().IsMulticast() {
		return id.refuse(op, "%v is no multicast group", group.GID)
	}
	return id.joinGID(op, group.GID, userData, sendOnly)
}

// LeaveMulticastIB leaves a group that is named by its GID.
//
// Implements: rdma_leave_multicast with AF_IB.
func (id *cmID) LeaveMulticastIB(group verbs.IBAddr) error { return id.leaveGID(group.GID) }
