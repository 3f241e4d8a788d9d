package verbstest

import (
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// manyReceivers is the number of queue pairs in one group of a case.
const manyReceivers = 4

var mcastOnly = udOnly.with(func(n *needs) { n.mcast = manyReceivers })

var mcastCases = []Spec{
	{Name: "mcast_reaches_every_attached_queue_pair", Rule: "IBTA 10.5.2; ibv_attach_mcast(3)", needs: mcastOnly, run: mcastAll},
	{Name: "mcast_passes_by_who_is_not_attached", Rule: "IBTA 10.5.2", needs: mcastOnly, run: mcastNot},
	{Name: "mcast_attaching_twice_is_once", Rule: "contract: QP.AttachMcast; IBTA 10.5.2.1", needs: mcastOnly, run: mcastTwice},
	{Name: "mcast_detach_ends_it", Rule: "ibv_detach_mcast(3)", needs: mcastOnly, run: mcastDetach},
	{Name: "mcast_detach_of_a_stranger_is_refused", Rule: "ibv_detach_mcast(3): EINVAL", needs: mcastOnly, run: mcastStranger},
	{Name: "mcast_attach_is_for_datagrams_and_groups_only", Rule: "IBTA 11.3.1; ibv_attach_mcast(3): EINVAL", needs: mcastOnly, run: mcastWrong},
	{Name: "mcast_one_queue_pair_hears_several_groups", Rule: "IBTA 10.5.2", needs: mcastOnly, run: mcastGroups},
	{Name: "mcast_queue_key_is_checked_for_each", Rule: "IBTA 9.6.1.4.1", needs: mcastOnly, run: mcastKey},
	{Name: "mcast_close_detaches", Rule: "contract: QP.AttachMcast", needs: mcastOnly, run: mcastClose},
	{Name: "mcast_is_looped_back_to_the_senders_device", Rule: "IBTA 10.5.2: replicated within the adapter too; rxe rxe_rcv_mcast_pkt", needs: mcastOnly, run: mcastLoop},
	{Name: "mcast_payload_stands_behind_40_bytes", Rule: "semantics 32", needs: mcastOnly, run: mcastForty},
}

// mcastGroupCount is the number of multicast groups in the cases.
const mcastGroupCount = 2

// Groups returns the multicast groups that cases attach queue pairs to. Attaching is not joining
// (IBTA 10.5.2.1): where datagrams come through the host's network, as with Soft-RoCE, the tester
// makes the host join them.
func Groups() (all []netip.Addr) {
	for n := range byte(mcastGroupCount) {
		all = append(all, group(n+1).Addr())
	}
	return all
}

// group returns multicast group n of a case, from 1: 239.1.1.n, as RoCE maps it.
func group(n byte) verbs.GID { return verbs.GIDFromAddr(netip.AddrFrom4([4]byte{239, 1, 1, n})) }

// joined makes a datagram queue pair attached to groups, with receives posted into memory of its
// own.
func (e *End) joined(recvs int, groups ...verbs.GID) (*QP, *Region) {
	e.c.t.Helper()
	q := e.ud()
	for _, g := range groups {
		e.c.must(q.AttachMcast(g, 0), "attach_mcast to %v", g)
	}
	r := e.region(64 * max(recvs, 1)).poison()
	for i := range recvs {
		q.recv(RR{id: uint64(i), sg: sg(r.sge(64*i, 64))})
	}
	return q, r
}

// cast sends the first 8 bytes of src to a group.
func (q *QP) cast(g verbs.GID, id uint64, src verbs.SGE) {
	q.c.t.Helper()
	q.send(sendOf(id, src).to(q.end.ah(g), verbs.McastQPN, udKey))
	q.sent(q.scq.one(), id, verbs.WCSend)
}

func mcastAll(c *Case) {
	var qs []*QP
	var rs []*Region
	for range manyReceivers {
		q, r := c.B.joined(2, group(1))
		qs, rs = append(qs, q), append(rs, r)
	}
	a, src := c.A.ud(), c.A.region(16).fill(1)
	a.cast(group(1), 1, src.sge(0, 8))
	a.cast(group(1), 2, src.sge(8, 8))
	for i, q := range qs {
		q.datagram(q.rcq.one(), 0, 8, a)
		q.datagram(q.rcq.one(), 1, 8, a)
		c.same(rs[i].bytes()[grhSize:grhSize+8], src.bytes()[:8], "the first copy")
		c.same(rs[i].bytes()[64+grhSize:64+grhSize+8], src.bytes()[8:], "the second copy")
		q.rcq.none("two datagrams were sent to the group")
	}
}

func mcastNot(c *Case) {
	in, _ := c.B.joined(1, group(1))
	other, r := c.B.joined(1, group(2))
	none, r2 := c.B.joined(1)
	a := c.A.ud()
	a.cast(group(1), 1, c.A.region(8).all())
	in.datagram(in.rcq.one(), 0, 8, a)
	other.rcq.none("it is attached to another group")
	none.rcq.none("it is attached to no group")
	c.untouched(r.bytes(), "the receive of another group")
	c.untouched(r2.bytes(), "the receive of no group")
}

func mcastTwice(c *Case) {
	b, _ := c.B.joined(3, group(1), group(1))
	a, src := c.A.ud(), c.A.region(8)
	a.cast(group(1), 1, src.all())
	b.datagram(b.rcq.one(), 0, 8, a)
	b.rcq.none("attaching twice is once")
	c.must(b.DetachMcast(group(1), 0), "detach_mcast")
	a.cast(group(1), 2, src.all())
	b.rcq.none("detaching once undoes it")
}

func mcastDetach(c *Case) {
	b, _ := c.B.joined(3, group(1))
	stays, _ := c.B.joined(3, group(1))
	a, src := c.A.ud(), c.A.region(8)
	a.cast(group(1), 1, src.all())
	b.datagram(b.rcq.one(), 0, 8, a)
	c.must(b.DetachMcast(group(1), 0), "detach_mcast")
	a.cast(group(1), 2, src.all())
	stays.rcq.take(2)
	b.rcq.none("it was detached")
	c.must(b.AttachMcast(group(1), 0), "attach_mcast again")
	a.cast(group(1), 3, src.all())
	b.datagram(b.rcq.one(), 1, 8, a)
}

func mcastStranger(c *Case) {
	b, _ := c.B.joined(0, group(1))
	c.refused(b.DetachMcast(group(2), 0), "detach_mcast from a group it is not in", verbs.ErrInvalid, syscall.EINVAL)
	c.refused(c.B.ud().DetachMcast(group(1), 0), "detach_mcast by a queue pair that is not in the group", verbs.ErrInvalid, syscall.EINVAL)
}

func mcastWrong(c *Case) {
	rc := c.A.newQP(c.defaults(), psnA)
	c.refused(rc.AttachMcast(group(1), 0), "attach_mcast of an RC queue pair", verbs.ErrInvalid, syscall.EINVAL, verbs.ErrNotSupported)
	c.refused(c.A.ud().AttachMcast(c.A.gid, 0), "attach_mcast to an address that is no group", verbs.ErrInvalid, syscall.EINVAL)
}

func mcastGroups(c *Case) {
	b, _ := c.B.joined(3, group(1), group(2))
	a, src := c.A.ud(), c.A.region(8)
	a.cast(group(1), 1, src.all())
	b.datagram(b.rcq.one(), 0, 8, a)
	a.cast(group(2), 2, src.all())
	b.datagram(b.rcq.one(), 1, 8, a)
	c.must(b.DetachMcast(group(1), 0), "detach_mcast from one group")
	a.cast(group(1), 3, src.all())
	b.rcq.none("it was detached from this group")
	a.cast(group(2), 4, src.all())
	b.datagram(b.rcq.one(), 2, 8, a)
}

func mcastKey(c *Case) {
	right, _ := c.B.joined(1, group(1))
	wrong, r := c.B.joined(1, group(1))
	c.must(wrong.Modify(&verbs.QPAttr{State: verbs.QPSRTS, QKey: udKey + 1}, verbs.QPMState|verbs.QPMQKey), "setting another Q_Key")
	a := c.A.ud()
	a.cast(group(1), 1, c.A.region(8).all())
	right.datagram(right.rcq.one(), 0, 8, a)
	wrong.rcq.none("its Q_Key is another")
	c.untouched(r.bytes(), "the receive of a queue pair with another Q_Key")
}

func mcastClose(c *Case) {
	b, _ := c.B.joined(1, group(1))
	stays, _ := c.B.joined(2, group(1))
	a, src := c.A.ud(), c.A.region(8)
	a.cast(group(1), 1, src.all())
	b.datagram(b.rcq.one(), 0, 8, a)
	c.must(b.Close(), "destroy_qp of an attached queue pair")
	a.cast(group(1), 2, src.all())
	stays.rcq.take(2)
	b.rcq.none("it was destroyed")
}

// A copy for the sender itself is optional: adapters send one, and IPoIB drops it.
func mcastLoop(c *Case) {
	other, r := c.A.joined(2, group(1))
	a, mine := c.A.joined(2, group(1))
	src := c.A.region(8).fill(1)
	a.cast(group(1), 1, src.all())
	other.datagram(other.rcq.one(), 0, 8, a)
	c.same(r.bytes()[grhSize:grhSize+8], src.bytes(), "the copy on the sender's device")
	other.rcq.none("one datagram, one copy")
	c.settle()
	for a.rcq.poll() > 0 {
	}
	if len(a.rcq.got) > 1 {
		c.failf("the sender received its datagram %d times", len(a.rcq.got))
	}
	for _, w := range a.rcq.got {
		a.datagram(w, 0, 8, a)
		c.same(mine.bytes()[grhSize:grhSize+8], src.bytes(), "the sender's own copy")
	}
}

func mcastForty(c *Case) {
	b, r := c.B.joined(1, group(1))
	a, src := c.A.ud(), c.A.region(8).fill(3)
	a.cast(group(1), 1, src.all())
	w := b.rcq.one()
	b.datagram(w, 0, 8, a)
	c.same(r.bytes()[grhSize:grhSize+8], src.bytes(), "the payload")
	c.untouched(r.bytes()[grhSize+8:], "the memory behind the payload")
	c.withinGRH(c.B, w, r.bytes()[:grhSize], c.A)
}
