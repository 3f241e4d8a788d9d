package verbstest

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

var cmJoinOnly = needs{kinds: []verbs.QPType{verbs.QPTUD}, cm: true, udp: true, join: true, ah: true, mcast: 2, ops: sendOnly.ops}

var cmJoinCases = []Spec{
	{Name: "cm_join_brings_the_way_to_the_group", Rule: "rdma_join_multicast(3); rdma_get_cm_event(3): MULTICAST_JOIN", needs: cmJoinOnly, run: cmJoinWay},
	{Name: "cm_joined_members_hear_the_group", Rule: "rdma_join_multicast(3): the queue pair is attached", needs: cmJoinOnly, run: cmJoinHear},
	{Name: "cm_leave_ends_it", Rule: "rdma_leave_multicast(3)", needs: cmJoinOnly, run: cmJoinLeave},
	{Name: "cm_join_of_no_group_is_refused", Rule: "rdma_join_multicast(3); kernel rdma_join_multicast", needs: cmJoinOnly, run: cmJoinWrong},
	{Name: "cm_closing_a_member_leaves_the_group", Rule: "rdma_destroy_id(3)", needs: cmJoinOnly, run: cmJoinClose},
}

// mcastAddr is the group that the cases join.
var mcastAddr = netip.AddrFrom4([4]byte{239, 2, 2, 2})

// member makes an identifier with a datagram queue pair that has joined the group.
func (m *CM) member() (verbs.CMID, *QP, verbs.CMEvent) {
	m.c.t.Helper()
	id := m.udpID(0)
	m.c.must(id.Bind(netip.AddrPortFrom(m.end.addr, 0)), "bind_addr")
	q := m.udQP(id)
	m.c.must(id.JoinMulticast(mcastAddr, 0xabc), "join_multicast")
	return id, q, m.take(verbs.CMMulticastJoin)
}

func cmJoinWay(c *Case) {
	m := c.A.cm()
	id, _, ev := m.member()
	if ev.ID != id || ev.UserData != 0xabc || ev.UD.QPNum != verbs.McastQPN || ev.UD.QKey != verbs.UDPQKey || !ev.UD.AH.DGID.Addr().IsMulticast() && ev.UD.AH.DGID[0] != 0xff {
		c.failf("joining %v brought %+v", mcastAddr, ev)
	}
	m.quiet("one join, one event")
}

func cmJoinHear(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, a, ev := ma.member()
	_, b, _ := mb.member()
	src, dst := c.A.region(8).fill(1), c.B.region(48)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()).to(c.A.handle(ev.UD.AH), ev.UD.QPNum, ev.UD.QKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.datagram(b.rcq.one(), 9, 8, a)
	c.same(dst.bytes()[grhSize:], src.bytes(), "a datagram to the group")
}

func cmJoinLeave(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, a, ev := ma.member()
	idb, b, _ := mb.member()
	src, dst := c.A.region(8), c.B.region(96)
	b.recv(RR{id: 8, sg: sg(dst.sge(0, 48))}, RR{id: 9, sg: sg(dst.sge(48, 48))})
	ah := c.A.handle(ev.UD.AH)
	a.send(sendOf(1, src.all()).to(ah, ev.UD.QPNum, ev.UD.QKey))
	b.datagram(b.rcq.one(), 8, 8, a)
	c.must(idb.LeaveMulticast(mcastAddr), "leave_multicast")
	a.send(sendOf(2, src.all()).to(ah, ev.UD.QPNum, ev.UD.QKey))
	b.rcq.none("it has left the group")
	c.refused(idb.LeaveMulticast(mcastAddr), "leave_multicast of a group it is not in")
}

func cmJoinWrong(c *Case) {
	m := c.A.cm()
	id := m.udpID(0)
	c.must(id.Bind(netip.AddrPortFrom(c.A.addr, 0)), "bind_addr")
	m.udQP(id)
	c.refused(id.JoinMulticast(c.B.addr, 0), "join_multicast of an address that is no group")
	m.quiet("nothing was joined")
}

func cmJoinClose(c *Case) {
	ma, mb := c.A.cm(), c.B.cm()
	_, a, ev := ma.member()
	idb, b, _ := mb.member()
	c.until("closing a member", func() bool { return idb.Close() == nil })
	a.send(sendOf(1, c.A.region(8).all()).to(c.A.handle(ev.UD.AH), ev.UD.QPNum, ev.UD.QKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.rcq.none("its identifier was closed, and its queue pair with it")
}
