package runtime

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// membership is a PacketConn's membership of a multicast group. The PacketConn's own connection
// manager identifier listens, and a listening identifier cannot join (kernel cma.c,
// rdma_join_multicast). So each membership joins with an identifier of its own. This identifier has
// no queue pair, so the join attaches no queue pair to the group. Instead, membership.onCM attaches
// the PacketConn's queue pair. Only the holder of the turn (the goroutine that runs the reactor) uses
// a membership.
//
//	JoinMulticast      MULTICAST_JOIN            the Peer is closed, or the PacketConn ends
//	─────────────> joining ──────────> member ───────────────────────────────────────> left
//	                  └─ error, timeout, or the PacketConn ends ──> left
type membership struct {
	p        *PacketConn
	group    netip.Addr // as the caller of Join has spelled it
	key      verbs.GID  // of group, without the zone: its key in PacketConn.groups
	id       verbs.CMID
	gid      verbs.GID
	lid      uint16
	attached bool
	timer    *reactor.Timer // limits the time of joining
	promise  futures.Promise[*Peer]
}

// Join joins a multicast group. When Join has succeeded, p receives the group's datagrams, and
// datagrams sent to the returned Peer go to all members. Closing the Peer leaves the group. Join
// waits until p is a member or ctx ends, at most Config.ConnectTimeout. If ctx ends, p leaves the group, and may
// join it again at once.
//
// A group has one membership of p, however its address is spelled: IPv4 as ::ffff:a.b.c.d is the same group, and a
// zone does not count, because p has one port. On the software RNIC a group consists of the members in this
// process: Join succeeds, and no datagram leaves the process, also with soft.LinkPeers and soft.LinkRoCE.
//
// Errors: ErrConnectTimeout; ErrInvalid for a group that is already joined, or for an address that
// is not multicast; the cause if p has ended (see Err); the context's error; errors of the device.
//
// Implements: rdma_join_multicast, ibv_attach_mcast.
func (p *PacketConn) Join(ctx context.Context, group netip.Addr) (*Peer, error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return nil, err
	}
	m, f := p.join(group)
	e, err := f.Await(asked)
	if err != nil && f.Valid() {
		f.Discard()                                              // if p is a member, disposePeer closes the Peer
		p.sh.r.Defer(func() { m.refused(futures.ErrDiscarded) }) // before m.start of a later Join
		err = asked.Cause(ctx, err)
	}
	return e, err
}

func (p *PacketConn) join(group netip.Addr) (m *membership, f futures.Future[*Peer]) {
	m = &membership{p: p, group: group, key: verbs.GIDFromAddr(group)}
	m.promise, f = p.rt.peers.New(nil)
	p.sh.r.Defer(m.start)
	return m, f
}

func (m *membership) start() {
	p := m.p
	err := p.Err()
	if err == nil && p.groups[m.key] != nil {
		err = fmt.Errorf("%w: %v is joined already", verbs.ErrInvalid, m.group)
	}
	if err != nil {
		m.promise.Settle(nil, err)
		return
	}
	p.groups[m.key] = m
	from := p.rt.addr
	if _, ok := p.rt.dev.(verbs.Addresser); ok && !p.addr.Addr().IsUnspecified() {
		from = p.addr.Addr() // the address of the port of p's queue pair
	}
	if m.id, err = p.sh.cm.CreateID(verbs.PSUDP, 0); err == nil {
		p.sh.targets[m.id] = m
		err = m.id.Bind(netip.AddrPortFrom(from, 0))
	}
	if err == nil {
		err = m.id.JoinMulticast(m.group, 0)
	}
	if err != nil {
		m.refused(err)
		return
	}
	bound := p.rt.cfg.ConnectTimeout
	m.timer = p.sh.r.After(bound, func() {
		m.refused(fmt.Errorf("%w: joining %v, longer than %v (Config.ConnectTimeout)", ErrConnectTimeout, m.group, bound))
	})
}

// onCM implements cmTarget.
func (m *membership) onCM(ev *verbs.CMEvent) {
	p := m.p
	if p.groups[m.key] != m {
		return // the membership has ended
	}
	switch ev.Type {
	case verbs.CMMulticastJoin:
		m.gid, m.lid = ev.UD.AH.DGID, ev.UD.AH.DLID
		err := p.q.QP().AttachMcast(m.gid, m.lid)
		if err != nil {
			m.refused(err)
			return
		}
		m.attached = true
		p.sh.r.StopTimer(m.timer)
		e, err := p.newPeer(&ev.UD.AH, ev.UD.QPNum, ev.UD.QKey, m)
		if err != nil {
			m.refused(err)
			return
		}
		m.promise.Settle(e, nil)
	case verbs.CMMulticastError:
		m.refused(fmt.Errorf("joining %v: %w", m.group, statusError(ev.Status)))
	case verbs.CMDeviceRemoval:
		p.fail(verbs.ErrDeviceRemoved)
	}
}

func (m *membership) refused(err error) {
	m.leave()
	m.promise.Settle(nil, err)
}

// leave ends the membership, also while p is joining. If the membership has ended, it does nothing: p may be a
// member of the group by a later Join. Holder only.
func (m *membership) leave() {
	p := m.p
	if p.groups[m.key] != m {
		return
	}
	delete(p.groups, m.key)
	p.sh.r.StopTimer(m.timer)
	if m.attached {
		_ = p.q.QP().DetachMcast(m.gid, m.lid) // may fail if the device was removed
	}
	if m.id != nil {
		p.sh.closeID(m.id, nil)
	}
}

// leaveAll leaves every group. It is called before the queue pair is destroyed, because some devices
// (rdma_rxe) do not destroy a queue pair that is attached to a group. A Join in progress fails with
// the error that p.Err returns. Holder only.
func (p *PacketConn) leaveAll() {
	for _, m := range p.groups {
		m.leave()
		m.promise.Settle(nil, p.cause.Load()) // does nothing if Join has succeeded
	}
}
