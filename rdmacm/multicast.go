package rdmacm

import (
	"context"
	"errors"
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
// datagrams to the group arrive there. The context ctx matters to synchronous identifiers only: if it ends, the
// identifier leaves the group. An address of IPv4 as ::ffff:a.b.c.d is the same group, and a zone does not count.
//
// On the software RNIC a group consists of the members in this process: the join succeeds, and no datagram to the
// group leaves the process.
//
// Implements: rdma_join_multicast.
func (id *ID) JoinMulticast(ctx context.Context, group netip.Addr, userContext any) error {
	if id == nil {
		return errNil("rdma_join_multicast")
	}
	return id.JoinMulticastEx(ctx, group, MCFullMember, userContext)
}

// JoinMulticastEx is JoinMulticast with a kind of membership. With MCSendOnlyFullMember the queue pair is not attached;
// verbs.ErrNotSupported where librdmacm is older than rdma-core 16.
//
// Implements: rdma_join_multicast_ex, struct rdma_cm_join_mc_attr_ex.
func (id *ID) JoinMulticastEx(ctx context.Context, group netip.Addr, flag MCJoinFlag, userContext any) error {
	if id == nil {
		return errNil("rdma_join_multicast_ex")
	}
	call := verbs.CMID.JoinMulticast
	if flag == MCSendOnlyFullMember {
		call = verbs.CMID.JoinMulticastSendOnly
	}
	begin := func(number uint64) error { return call(id.cm, group, number) }
	return id.join(ctx, flag, verbs.GIDFromAddr(group), userContext, begin, func() error { return id.cm.LeaveMulticast(group) })
}

// joins has the contexts of the groups that an identifier has joined or is joining, until it leaves them.
type joins struct {
	last uint64 // the number of the last join, which is its user data
	all  []joined
}

// joined is one join of a group.
type joined struct {
	number  uint64
	group   verbs.GID
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

// join joins a group by call. If ctx ends before the join has, it leaves the group by undo.
func (id *ID) join(ctx context.Context, flag MCJoinFlag, group verbs.GID, userContext any, call func(number uint64) error, undo func() error) error {
	const op = "rdma_join_multicast"
	if flag > MCSendOnlyFullMember {
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: membership %d", verbs.ErrInvalid, flag))
	}
	id.mu.Lock()
	id.joins.last++
	number := id.joins.last
	id.joins.all = append(id.joins.all, joined{number, group, userContext})
	id.mu.Unlock()
	err := id.awaitOwn(ctx, op, func() error { return call(number) }, verbs.CMMulticastJoin, number)
	if err != nil {
		id.left(func(g joined) bool { return g.number == number })
		if ctx != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			_ = undo() // fails if the group is left or the identifier destroyed already
		}
	}
	return err
}

// LeaveMulticast leaves a group that the identifier has joined. On the software RNIC a group that was joined twice must
// be left twice; a device refuses the second join.
//
// Implements: rdma_leave_multicast.
func (id *ID) LeaveMulticast(group netip.Addr) error {
	if id == nil {
		return errNil("rdma_leave_multicast")
	}
	return id.leave(verbs.GIDFromAddr(group), id.cm.LeaveMulticast(group))
}

// leave forgets the context of the latest join of a group after the call that leaves it, which has returned err.
func (id *ID) leave(group verbs.GID, err error) error {
	if err == nil {
		id.left(func(g joined) bool { return g.group == group })
	}
	return named("rdma_leave_multicast", id, err)
}

// left forgets the context of the latest of some joins.
func (id *ID) left(which func(joined) bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	for i, g := range slices.Backward(id.joins.all) {
		if which(g) {
			id.joins.all = slices.Delete(id.joins.all, i, i+1)
			return
		}
	}
}
