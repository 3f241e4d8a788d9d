package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
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
	return id.join(ctx, "rdma_join_multicast", group, userContext, func(number uint64) error { return id.cm.JoinMulticast(group, number) })
}

// JoinMulticastEx is JoinMulticast with a kind of membership. With MCSendOnlyFullMember the queue pair is not attached;
// verbs.ErrNotSupported where librdmacm is older than rdma-core 16.
//
// Implements: rdma_join_multicast_ex, struct rdma_cm_join_mc_attr_ex.
func (id *ID) JoinMulticastEx(ctx context.Context, group netip.Addr, flag MCJoinFlag, userContext any) error {
	const op = "rdma_join_multicast_ex"
	switch flag {
	case MCFullMember:
		return id.join(ctx, op, group, userContext, func(number uint64) error { return id.cm.JoinMulticast(group, number) })
	case MCSendOnlyFullMember:
		return id.join(ctx, op, group, userContext, func(number uint64) error { return id.cm.JoinMulticastSendOnly(group, number) })
	}
	return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: membership %d", verbs.ErrInvalid, flag))
}

// joins has the contexts of the groups that an identifier has joined or is joining, until it leaves them.
type joins struct {
	last uint64 // the number of the last join, which is its user data
	all  []joined
}

// joined is one group. A group that is named by an address of IP or of InfiniBand is a netip.Addr or a
// verbs.IBAddr.
type joined struct {
	number  uint64
	group   any
	context any
}

// context returns the context of a join; nil if the identifier has left the group.
func (j *joins) context(number uint64) any {
	for _, g := range j.all {
		if g.number == number {
			return g.context
		}
	}
	return nil
}

// join joins a group by call.
func (id *ID) join(ctx context.Context, op string, group, userContext any, call func(number uint64) error) error {
	id.mu.Lock()
	id.joins.last++
	number := id.joins.last
	id.joins.all = append(id.joins.all, joined{number, group, userContext})
	id.mu.Unlock()
	begin := func() error {
		err := call(number)
		if err != nil {
			id.left(func(g joined) bool { return g.number == number })
		}
		return err
	}
	return id.awaitOwn(ctx, op, begin, verbs.CMMulticastJoin, func(ev *Event) bool {
		joined := ev.Type == verbs.CMMulticastJoin || ev.Type == verbs.CMMulticastError
		return !joined || ev.join == number // of an earlier join whose context has ended
	})
}

// LeaveMulticast leaves a group that the identifier has joined.
//
// Implements: rdma_leave_multicast.
func (id *ID) LeaveMulticast(group netip.Addr) error {
	return id.leave(group, id.cm.LeaveMulticast(group))
}

// leave forgets the context of a group after the call that leaves it, which has returned err.
func (id *ID) leave(group any, err error) error {
	if err == nil {
		id.left(func(g joined) bool { return g.group == group })
	}
	return named("rdma_leave_multicast", id, err)
}

// left forgets the contexts of joins.
func (id *ID) left(which func(joined) bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.joins.all = slices.DeleteFunc(id.joins.all, which)
}
