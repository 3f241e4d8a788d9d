package verbstest

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

var udCases = []Spec{
	{Name: "ud_payload_stands_behind_40_bytes", Rule: "semantics 32; IBTA 11.4.1.2", needs: udOnly, run: udForty},
	{Name: "ud_immediate_data_and_sender_arrive", Rule: "semantics 25, 32; IBTA 11.4.2.1: source QP", needs: udImm, run: udImmediate},
	{Name: "ud_forty_bytes_may_be_an_element_of_their_own", Rule: "semantics 32; ibv_post_recv(3)", needs: udOnly.with(func(n *needs) { n.sge = 3 }), run: udScattered},
	{Name: "ud_one_queue_pair_hears_many_and_answers_many", Rule: "IBTA 9.8.3; semantics 32", needs: udOnly, run: udMany},
	{Name: "ud_largest_datagram_arrives", Rule: "IBTA 9.8.3.1: one packet of the port's MTU", needs: udOnly, run: udLargest},
	{Name: "ud_empty_datagram_arrives", Rule: "IBTA 9.8.3: zero length", needs: udOnly, run: udEmpty},
	{Name: "ud_inline_buffer_is_free_at_once", Rule: "semantics 31", needs: udOnly.with(func(n *needs) { n.inline = 32 }), run: udInline},
	{Name: "ud_reaches_its_own_device_and_itself", Rule: "IBTA 17.2.2: loopback", needs: udOnly, run: udLoopback},
	{Name: "ud_lid_alone_reaches_and_answers_within_a_subnet", Rule: "IBTA 8.2.1: a GRH between subnets only; ibv_create_ah_from_wc(3)", needs: udOnly, run: udLIDs},
	{Name: "ud_address_handle_counts_and_keeps_its_domain", Rule: "semantics 32; ibv_create_ah(3), ibv_dealloc_pd(3)", needs: udOnly, run: ahCounts},
	{Name: "ud_address_handle_of_no_port_or_address_is_refused", Rule: "ibv_create_ah(3): EINVAL", needs: udOnly, run: ahRefused},
	{Name: "ud_one_address_handle_serves_many_requests", Rule: "semantics 32", needs: udOnly, run: ahShared},
	{Name: "ud_buffer_is_free_at_the_completion", Rule: "IBTA 10.8.5: ownership", needs: udOnly, run: udOwnership},
	{Name: "ud_query_reads_the_queue_key", Rule: "ibv_query_qp(3)", needs: udOnly, run: udQueryKey},
	{Name: "ud_queue_key_can_be_changed_in_rts", Rule: "IBTA 11.2.5.2: RTS to RTS, Q_Key optional", needs: udOnly, run: udNewKey},
	{Name: "ud_solicited_datagram_raises_the_event", Rule: "semantics 28; IBTA 9.2.3", needs: udOnly, run: udSolicited},
}

func udForty(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(100).fill(1), c.B.region(200).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	w := b.rcq.one()
	b.datagram(w, 9, 100, a)
	c.same(dst.bytes()[grhSize:grhSize+100], src.bytes(), "the payload")
	c.untouched(dst.bytes()[grhSize+100:], "the memory behind the payload")
	c.withinGRH(c.B, w, dst.bytes()[:grhSize], c.A)
	if w.Flags&(verbs.WCWithImm|verbs.WCWithInv) != 0 {
		c.failf("a plain datagram came with flags %v", w.Flags)
	}
	if w.PKeyIndex != 0 {
		c.failf("the datagram came with P_Key index %d, sent was 0", w.PKeyIndex)
	}
}

func udImmediate(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(8).fill(1), c.B.region(64)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendImmOf(1, 0xdeadbeef, src.all()).to(ah, b.Num(), udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	w := b.rcq.one()
	b.datagram(w, 9, 8, a)
	if w.Flags&verbs.WCWithImm == 0 || w.Imm() != 0xdeadbeef {
		c.failf("immediate data 0xdeadbeef came as %#x, flags %v", w.Imm(), w.Flags)
	}
}

// udLIDs sends to a LID without a GRH, and answers by what the completion says of the sender.
func udLIDs(c *Case) {
	const level = 3 // service level
	for _, e := range []*End{c.A, c.B} {
		port, err := e.ctx.QueryPort(e.ep.Port)
		c.must(err, "query_port")
		if port.LinkLayer != verbs.LinkInfiniBand || port.LID == 0 {
			c.skipped = "addresses are not LIDs"
			return
		}
	}
	a, b := c.A.ud(), c.B.ud()
	way := verbs.AHAttr{DLID: c.B.lid, SL: level, Port: c.A.ep.Port}
	for i, q := range []*QP{b, a} { // there and back
		from := []*QP{a, b}[i]
		ah, err := from.end.pd.CreateAH(&way)
		c.must(err, "create_ah of LID %#x", way.DLID)
		c.defers(ah.Close)
		src, dst := from.end.region(8).fill(i), q.end.region(64).poison()
		q.recv(RR{id: 9, sg: sg(dst.all())})
		from.send(sendOf(1, src.all()).to(ah, q.Num(), udKey))
		from.sent(from.scq.one(), 1, verbs.WCSend)
		w := q.rcq.one()
		q.datagram(w, 9, 8, from)
		c.same(dst.bytes()[grhSize:grhSize+8], src.bytes(), "the payload")
		if w.Flags&verbs.WCWithGRH != 0 || w.SLID != from.end.lid || w.SL != level {
			c.failf("a datagram without a GRH from LID %#x with service level %d came so: %s, SLID %#x, SL %d", from.end.lid, level, show(w), w.SLID, w.SL)
		}
		way, err = verbs.InitAHFromLID(w.SLID, w.SL, w.DLIDPathBits, q.end.ep.Port)
		c.must(err, "the way back")
	}
}

func udScattered(c *Case) {
	a, b, ah := c.udPair(func(o *opts) { o.sges = 3 })
	src, grh, dst := c.A.region(30).fill(1), c.B.region(grhSize), c.B.region(64).poison()
	b.recv(RR{id: 8, sg: sg(grh.all(), dst.sge(0, 30))})
	b.recv(RR{id: 9, sg: sg(grh.sge(0, 17), grh.sge(17, 23), dst.sge(30, 34))})
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey), sendOf(2, src.sge(0, 10), src.sge(10, 20)).to(ah, b.Num(), udKey))
	b.datagram(b.rcq.one(), 8, 30, a)
	c.same(dst.bytes()[:30], src.bytes(), "a payload with an element of its own")
	b.datagram(b.rcq.one(), 9, 30, a)
	c.same(dst.bytes()[30:60], src.bytes(), "a payload behind 40 bytes in two elements")
	c.untouched(dst.bytes()[60:], "the memory behind it")
}

func udMany(c *Case) {
	const n = 4
	b, ah, back := c.B.ud(), c.A.ah(c.B.gid), c.B.ah(c.A.gid)
	src, dst, got := c.A.region(8).fill(1), c.B.region(n*48), c.A.region(48)
	as := map[uint32]*QP{}
	for i := range n {
		b.recv(RR{id: uint64(i), sg: sg(dst.sge(48*i, 48))})
		q := c.A.ud()
		as[q.Num()] = q
		q.recv(RR{id: 77, sg: sg(got.all())})
		q.send(sendOf(uint64(i), src.all()).to(ah, b.Num(), udKey))
	}
	for i, w := range b.rcq.take(n) {
		q := as[w.SrcQP]
		if q == nil {
			c.failf("datagram %d came from QP %#x, which sent none", i, w.SrcQP)
		}
		delete(as, w.SrcQP)
		b.send(sendOf(9, dst.sge(0, 8)).to(back, q.Num(), udKey))
		q.datagram(q.rcq.one(), 77, 8, b)
	}
}

func udLargest(c *Case) {
	n := c.maxDatagram()
	a, b, ah := c.udPair()
	src, dst := c.A.region(n).fill(1), c.B.region(n+grhSize).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.datagram(b.rcq.one(), 9, n, a)
	c.same(dst.bytes()[grhSize:], src.bytes(), fmt.Sprintf("a datagram of %d bytes", n))
}

func udEmpty(c *Case) {
	a, b, ah := c.udPair()
	dst := c.B.region(64).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1).to(ah, b.Num(), udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.datagram(b.rcq.one(), 9, 0, a)
	c.untouched(dst.bytes()[grhSize:], "the memory behind the 40 bytes of an empty datagram")
}

func udInline(c *Case) {
	a, b, ah := c.udPair(func(o *opts) { o.inline = 32 })
	src, dst := c.A.region(32).fill(1), c.B.region(72)
	want := append([]byte{}, src.bytes()...)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	bad := src.all()
	bad.LKey = 0xbadbad // ignored
	a.send(sendOf(1, bad).to(ah, b.Num(), udKey).with(signaled | verbs.SendInline))
	src.poison()
	b.datagram(b.rcq.one(), 9, 32, a)
	c.same(dst.bytes()[grhSize:], want, "an inline datagram whose buffer was reused at once")
}

func udLoopback(c *Case) {
	a, other, ah := c.A.ud(), c.A.ud(), c.A.ah(c.A.gid)
	src, dst := c.A.region(16).fill(1), c.A.region(128)
	other.recv(RR{id: 8, sg: sg(dst.sge(0, 56))})
	a.recv(RR{id: 9, sg: sg(dst.sge(64, 56))})
	a.send(sendOf(1, src.all()).to(ah, other.Num(), udKey), sendOf(2, src.all()).to(ah, a.Num(), udKey))
	other.datagram(other.rcq.one(), 8, 16, a)
	a.datagram(a.rcq.one(), 9, 16, a)
	c.same(dst.bytes()[grhSize:56], src.bytes(), "a datagram to another queue pair of the device")
	c.same(dst.bytes()[64+grhSize:120], src.bytes(), "a datagram to oneself")
}

func ahCounts(c *Case) {
	before := c.A.ctx.Objects()
	pd := c.A.newPD()
	ah, err := pd.CreateAH(c.A.ahAttr(c.B.gid))
	c.must(err, "create_ah")
	c.defers(ah.Close)
	if got := c.A.ctx.Objects(); got.AH != before.AH+1 {
		c.failf("after create_ah the context counts %v, before it %v", got, before)
	}
	c.refused(pd.Close(), "closing a domain with an address handle", verbs.ErrBusy)
	c.must(ah.Close(), "destroy_ah")
	c.must(ah.Close(), "destroy_ah again")
	c.must(pd.Close(), "closing the domain after its address handle")
	if got := c.A.ctx.Objects(); got != before {
		c.failf("after destroy_ah the context counts %v, before %v", got, before)
	}
}

func ahRefused(c *Case) {
	for what, mod := range map[string]func(*verbs.AHAttr){
		"port 0":               func(a *verbs.AHAttr) { a.Port = 0 },
		"port 200":             func(a *verbs.AHAttr) { a.Port = 200 },
		"an address not there": func(a *verbs.AHAttr) { a.SGIDIndex = 250 },
	} {
		attr := c.A.ahAttr(c.B.gid)
		mod(attr)
		ah, err := c.A.pd.CreateAH(attr)
		if err == nil {
			c.defers(ah.Close)
		}
		c.refused(err, "create_ah with "+what)
	}
}

func ahShared(c *Case) {
	const n = 10
	a, b, ah := c.udPair()
	b2 := c.B.ud()
	src, dst := c.A.region(8).fill(1), c.B.region(48)
	for i := range n {
		to := []*QP{b, b2}[i%2]
		to.recv(RR{id: uint64(i), sg: sg(dst.all())})
		a.send(sendOf(uint64(i), src.all()).to(ah, to.Num(), udKey))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		to.datagram(to.rcq.one(), uint64(i), 8, a)
	}
	c.must(ah.Close(), "destroy_ah after the completion of all that used it")
}

// The completion gives the buffer back, whether the datagram has arrived or not: later writes of
// the owner must not arrive.
func udOwnership(c *Case) {
	a, b, ah := c.udPair()
	src, dst := c.A.region(64).fill(1), c.B.region(104)
	want := append([]byte{}, src.bytes()...)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	src.poison()
	b.datagram(b.rcq.one(), 9, 64, a)
	c.same(dst.bytes()[grhSize:], want, "a datagram whose buffer was reused after its completion")
}

func udQueryKey(c *Case) {
	q := c.A.ud()
	got, err := q.Query()
	c.must(err, "query_qp")
	if got.QKey != udKey || got.State != verbs.QPSRTS || q.Type() != verbs.QPTUD {
		c.failf("query_qp reads Q_Key %#x, state %v, type %v", got.QKey, got.State, q.Type())
	}
}

func udNewKey(c *Case) {
	const other = 0x55667788
	a, b, ah := c.udPair()
	src, dst := c.A.region(8).fill(1), c.B.region(48)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	c.must(b.Modify(&verbs.QPAttr{State: verbs.QPSRTS, QKey: other}, verbs.QPMState|verbs.QPMQKey), "RTS to RTS with a new Q_Key")
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.rcq.none("the Q_Key was changed")
	a.send(sendOf(2, src.all()).to(ah, b.Num(), other))
	b.datagram(b.rcq.one(), 9, 8, a)
}

func udSolicited(c *Case) {
	a, b, ah := c.udPair(func(o *opts) { o.channel = true })
	src, dst := c.A.region(8).fill(1), c.B.region(96)
	b.recv(RR{id: 8, sg: sg(dst.sge(0, 48))}, RR{id: 9, sg: sg(dst.sge(48, 48))})
	b.rcq.arm(true)
	a.send(sendOf(1, src.all()).to(ah, b.Num(), udKey))
	b.rcq.one()
	b.rcq.noEvent("an unsolicited datagram")
	a.send(sendOf(2, src.all()).to(ah, b.Num(), udKey).with(signaled | verbs.SendSolicited))
	b.rcq.untilEvent("a solicited datagram")
}
