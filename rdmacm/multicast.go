package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// MCJoinFlag is a kind of membership in a multicast group.
//
// Implements: enum rdma_cm_mc_join_flags.
type MCJoinFlag uint32

// The kinds of membership.
const (
	MCFullMember         MCJoinFlag = 0
	MCSendOnlyFullMember MCJoinFlag = 1 // datagrams to the group do not arrive
)

// JoinMulticast joins a group. Event MULTICAST_JOIN brings the way to the group in Event.UD and
// userContext in Event.Arg, or MULTICAST_ERROR follows. The queue pair is attached to the group, so
// datagrams to the group arrive there. The context ctx matters to synchronous identifiers only.
//
// Implements: rdma_join_multicast.
func (id *ID) JoinMulticast(ctx context.Context, group netip.Addr, userContext any) error {
	return id.join(ctx, "rdma_join_multicast", userContext, func(number uint64) error { return id.cm.JoinMulticast(group, number) })
}

// JoinMulticastEx is JoinMulticast with a kind of membership. With MCSendOnlyFullMember the queue pair is not attached;
// verbs.ErrNotSupported where librdmacm is older than rdma-core 16.
//
// Implements: rdma_join_multicast_ex, struct rdma_cm_join_mc_attr_ex.
func (id *ID) JoinMulticastEx(ctx context.Context, group netip.Addr, flag MCJoinFlag, userContext any) error {
	const op = "rdma_join_multicast_ex"
	switch flag {
	case MCFullMember:
		return id.join(ctx, op, userContext, func(number uint64) error { return id.cm.JoinMulticast(group, number) })
	case MCSendOnlyFullMember:
		return id.join(ctx, op, userContext, func(number uint64) error { return id.cm.JoinMulticastSendOnly(group, number) })
	}
	return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: membership %d", verbs.ErrInvalid, flag))
}

func (id *ID) join(ctx context.Context, op string, userContext any, call func(number uint64) error) error {
	id.mu.Lock()
	number := uint64(len(id.joins))
	id.joins = append(id.joins, userContext)
	id.mu.Unlock()
	return id.awaitOwn(ctx, op, func() error { return call(number) }, verbs.CMMulticastJoin, func(ev *Event) bool {
		joined := ev.Type == verbs.CMMulticastJoin || ev.Type == verbs.CMMulticastError
		return !joined || ev.join == number // of an earlier join whose context has ended
	})
}

// LeaveMulticast leaves a group that the identifier has joined.
//
// Implements: rdma_leave_multicast.
func (id *ID) LeaveMulticast(group netip.Addr) error {
	return named("rdma_leave_multicast", id, id.cm.LeaveMulticast(group))
}
