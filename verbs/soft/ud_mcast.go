package soft

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// mcastGroup is the queue pairs of a device that are attached to a multicast group, in the order
// of attachment. While it exists, the device's port is a member of the fabric's group. It belongs
// to the holder of the port's token.
type mcastGroup struct{ qps []*queuePair }

// AttachMcast attaches the queue pair to a multicast group; it receives the group's datagrams in
// every state that receives. Attaching twice has no further effect. A reset does not detach,
// Close does. lid is ignored (RoCE has none). It waits for a running Progress call.
//
//	EINVAL  not UD, not a multicast GID
//	ENOMEM  too many groups, or too many queue pairs in this one
//
// Implements: ibv_attach_mcast.
func (q *queuePair) AttachMcast(gid verbs.GID, _ uint16) (err error) {
	const op = "ibv_attach_mcast"
	if q.kind != verbs.QPTUD || !isMulticast(gid) {
		return opError(op, q.String(), syscall.EINVAL, "%w: %v to %v", verbs.ErrInvalid, q.kind, gid)
	}
	if e := q.ctx.exclusive(op, func() {
		if q.closed.Load() {
			err = opError(op, q.String(), syscall.EINVAL, "%w", verbs.ErrClosed)
		} else if e := q.dev.attachMcast(q, gid); e != nil {
			err = opError(op, q.String(), syscall.ENOMEM, "%w", e)
		}
	}); e != nil {
		return e
	}
	return err
}

// DetachMcast detaches the queue pair from a group. It returns [verbs.ErrInvalid] when the queue
// pair was not attached. A datagram in flight is no longer delivered.
//
// Implements: ibv_detach_mcast.
func (q *queuePair) DetachMcast(gid verbs.GID, _ uint16) error {
	const op = "ibv_detach_mcast"
	was := false
	if e := q.ctx.exclusive(op, func() { was = q.dev.detachMcast(q, gid) }); e != nil {
		return e
	}
	if !was {
		return opError(op, q.String(), syscall.EINVAL, "%w: not attached to %v", verbs.ErrInvalid, gid)
	}
	return nil
}

// attachMcast implements AttachMcast. The caller holds the token.
func (d *device) attachMcast(q *queuePair, gid verbs.GID) error {
	l := &d.cfg.Limits
	g := d.groups[gid]
	switch {
	case g == nil && len(d.groups) >= l.MaxMcastGrp:
		return fmt.Errorf("all %d multicast groups are in use", l.MaxMcastGrp)
	case g == nil:
		g = &mcastGroup{}
		if d.groups == nil {
			d.groups = map[verbs.GID]*mcastGroup{}
		}
		d.groups[gid] = g
		d.p.Join(gid)
	case slices.Contains(g.qps, q):
		return nil
	case len(g.qps) >= l.MaxMcastQP:
		return fmt.Errorf("%d queue pairs are attached to %v already", l.MaxMcastQP, gid)
	}
	g.qps = append(g.qps, q)
	q.groups = append(q.groups, gid)
	return nil
}

// detachMcast takes q out of a group and reports whether it was in it. The caller holds the
// token.
func (d *device) detachMcast(q *queuePair, gid verbs.GID) bool {
	i := slices.Index(q.groups, gid)
	if i < 0 {
		return false
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	g := d.groups[gid]
	g.qps = slices.DeleteFunc(g.qps, func(p *queuePair) bool { return p == q })
	if len(g.qps) == 0 {
		delete(d.groups, gid)
		d.p.Leave(gid)
	}
	return true
}

// detachAll takes q out of every group.
func (d *device) detachAll(q *queuePair) {
	for len(q.groups) > 0 {
		d.detachMcast(q, q.groups[0])
	}
}
