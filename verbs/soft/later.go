package soft

import "net/netip"

// JoinMulticast is not supported yet.
//
// Implements: rdma_join_multicast.
func (id *cmID) JoinMulticast(netip.Addr, uint64) error {
	return notYet("rdma_join_multicast", id.String(), "multicast")
}

// LeaveMulticast is not supported yet.
//
// Implements: rdma_leave_multicast.
func (id *cmID) LeaveMulticast(netip.Addr) error {
	return notYet("rdma_leave_multicast", id.String(), "multicast")
}
