package soft

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

// OpenXRCD is not supported yet.
//
// Implements: ibv_open_xrcd.
func (c *deviceContext) OpenXRCD(int, int) (verbs.XRCD, error) {
	return nil, notYet("ibv_open_xrcd", c.String(), "extended-connection domains")
}

// AttachMcast is not supported yet.
//
// Implements: ibv_attach_mcast.
func (q *queuePair) AttachMcast(verbs.GID, uint16) error {
	return notYet("ibv_attach_mcast", q.String(), "multicast")
}

// DetachMcast is not supported yet.
//
// Implements: ibv_detach_mcast.
func (q *queuePair) DetachMcast(verbs.GID, uint16) error {
	return notYet("ibv_detach_mcast", q.String(), "multicast")
}

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
