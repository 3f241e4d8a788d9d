package rdmacm

import (
	"context"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// AddrFamily is a family of addresses, with the values of Linux.
type AddrFamily int

// The families.
const (
	AFInet  AddrFamily = 2
	AFInet6 AddrFamily = 10
	// AFIB is the family of InfiniBand: a GID and a service. Over libibverbs only ports of InfiniBand have it.
	AFIB AddrFamily = 27
)

// gids reports whether the results of GetAddrInfo have addresses of InfiniBand.
//
// Implements: the condition of ucma_convert_to_rai of librdmacm/addrinfo.c.
func (a *AddrInfo) gids() bool {
	const both = AIFamily | AINumericHost
	return a.Family == AFIB && a.Flags&both == both
}

// set makes an address the one to listen on, or to connect to.
func (a *AddrInfo) set(ip netip.Addr, port uint16) {
	ib := a.gids()
	gid := verbs.GIDFromAddr(ip)
	switch {
	case ib && a.Flags&AIPassive != 0:
		a.SrcIB = verbs.NewIBAddr(gid, a.PortSpace, port)
		return
	case ib:
		a.DstIB = verbs.NewIBAddr(gid, a.PortSpace, port)
		return
	}
	at := netip.AddrPortFrom(ip.Unmap(), port)
	if a.Family = AFInet6; at.Addr().Is4() {
		a.Family = AFInet
	}
	if a.Flags&AIPassive != 0 {
		a.Src = at
	} else {
		a.Dst = at
	}
}

// BindIB is BindAddr to an address of InfiniBand. An address without a GID is that of all devices. Over libibverbs the
// device must be of InfiniBand: otherwise the error is ENODEV. Not proven on a device.
//
// Implements: rdma_bind_addr with AF_IB.
func (id *ID) BindIB(addr verbs.IBAddr) error {
	if id == nil {
		return errNil("rdma_bind_addr")
	}
	return named("rdma_bind_addr", id, id.cm.BindIB(addr))
}

// ResolveIB is ResolveAddr with addresses of InfiniBand, of which src may be zero. Not proven on a device.
//
// Implements: rdma_resolve_addr with AF_IB.
func (id *ID) ResolveIB(ctx context.Context, src, dst verbs.IBAddr, timeout time.Duration) error {
	if id == nil {
		return errNil("rdma_resolve_addr")
	}
	return id.await(ctx, "rdma_resolve_addr", func() error { return id.cm.ResolveIB(src, dst, timeout) }, verbs.CMAddrResolved)
}

// IBAddrs returns the addresses of the two ends, if they are of InfiniBand; zero while unknown.
//
// Implements: rdma_get_local_addr, rdma_get_peer_addr, rdma_get_src_port, rdma_get_dst_port with AF_IB.
func (id *ID) IBAddrs() (local, peer verbs.IBAddr) { return id.cm.IBAddrs() }

// JoinMulticastIB is JoinMulticastEx for a group that is named by its GID. Not proven on a device.
//
// Implements: rdma_join_multicast, rdma_join_multicast_ex with AF_IB.
func (id *ID) JoinMulticastIB(ctx context.Context, group verbs.IBAddr, flag MCJoinFlag, userContext any) error {
	if id == nil {
		return errNil("rdma_join_multicast")
	}
	begin := func(number uint64) error { return id.cm.JoinMulticastIB(group, flag == MCSendOnlyFullMember, number) }
	return id.join(ctx, flag, group.GID, userContext, begin, func() error { return id.cm.LeaveMulticastIB(group) })
}

// LeaveMulticastIB leaves a group that is named by its GID.
//
// Implements: rdma_leave_multicast with AF_IB.
func (id *ID) LeaveMulticastIB(group verbs.IBAddr) error {
	if id == nil {
		return errNil("rdma_leave_multicast")
	}
	return id.leave(group.GID, id.cm.LeaveMulticastIB(group))
}
