package rdmacm

import (
	"context"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

// JoinMulticast joins a group. Event MULTICAST_JOIN brings the way to the group in Event.UD and
// userContext in Event.Arg, or MULTICAST_ERROR follows. The queue pair is attached to the group, so
// datagrams to the group arrive there. The context ctx matters to synchronous identifiers only.
//
// Implements: rdma_join_multicast.
func (id *ID) JoinMulticast(ctx context.Context, group netip.Addr, userContext any) error {
	id.mu.Lock()
	number := uint64(len(id.joins))
	id.joins = append(id.joins, userContext)
	id.mu.Unlock()
	return id.await(ctx, "rdma_join_multicast", func() error { return id.cm.JoinMulticast(group, number) }, verbs.CMMulticastJoin)
}

// LeaveMulticast leaves a group that the identifier has joined.
//
// Implements: rdma_leave_multicast.
func (id *ID) LeaveMulticast(group netip.Addr) error {
	return named("rdma_leave_multicast", id, id.cm.LeaveMulticast(group))
}
