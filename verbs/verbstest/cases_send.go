package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var sendCases = []Spec{
	{Name: "rc_send_fills_the_receive", Rule: "ibv_post_send(3), ibv_poll_cq(3)", needs: sendOnly, run: sendFills},
	{Name: "rc_send_with_imm_is_recv_with_imm", Rule: "semantics 41, 25; IBTA 9.5", needs: needs{ops: verbs.Opcodes(verbs.WRSendWithImm)}, run: sendImm},
	{Name: "rc_send_of_no_bytes_completes_both_sides", Rule: "IBTA 9.3.3.1: zero-length messages", needs: sendOnly, run: sendNothing},
	{Name: "rc_send_gathers_and_receive_scatters", Rule: "ibv_post_send(3): sg_list in order", needs: needs{ops: sendOnly.ops, sge: 4}, run: sendScatter},
	{Name: "rc_send_skips_empty_elements", Rule: "ibv_post_send(3): zero-length elements", needs: needs{ops: sendOnly.ops, sge: 4}, run: sendEmptyElements},
	{Name: "rc_receives_are_consumed_in_order", Rule: "IBTA 9.5: RC keeps the order", needs: sendOnly, run: sendOrder},
	{Name: "rc_message_longer_than_the_receive_fails_both_sides", Rule: "IBTA 9.9.6.3: LOC_LEN_ERR, NAK invalid request", needs: sendOnly, run: sendTooLong},
	{Name: "rc_both_directions_at_once", Rule: "IBTA 9.7: the two directions are independent", needs: sendOnly, run: sendBothWays},
	{Name: "rc_loopback_on_one_device", Rule: "IBTA 17.2.2: loopback", needs: sendWrite, run: loopback},
	{Name: "rc_packets_for_a_stranger_are_dropped", Rule: "IBTA 9.6.1.1.3", needs: sendOnly, run: stranger},
	{Name: "rc_packets_of_a_stranger_are_dropped", Rule: "IBTA 9.6.1.5; rxe check_addr; invariant 12", needs: sendOnly, run: impostor},
}

func sendFills(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(1000).fill(1), c.B.region(1500).poison()
	b.recv(RR{id: 9, sg: sg(dst.sge(100, 1200))})
	a.send(sendOf(1, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	w := b.rcq.one()
	b.received(w, 9, verbs.WCRecv, 1000)
	if w.Flags&(verbs.WCWithImm|verbs.WCWithInv) != 0 {
		c.failf("a plain SEND arrived with flags %v", w.Flags)
	}
	c.same(dst.bytes()[100:1100], src.bytes(), "the message")
	c.untouched(dst.bytes()[:100], "memory before the receive buffer")
	c.untouched(dst.bytes()[1100:], "the receive buffer behind byte_len")
	a.scq.none("one request, one completion")
	b.rcq.none("one message, one completion")
}

// The manuals of rpma and ibv_wr_post(3) have RECV_RDMA_WITH_IMM by mistake.
func sendImm(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	b.recv(RR{id: 9, sg: sg(dst.all())}, RR{id: 10})
	a.send(sendImmOf(1, 0x01020304, src.all()), sendImmOf(2, 0xfffefdfc))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	a.sent(a.scq.one(), 2, verbs.WCSend)
	for i, want := range []struct {
		imm uint32
		n   int
	}{{0x01020304, 64}, {0xfffefdfc, 0}} {
		w := b.rcq.one()
		b.received(w, uint64(9+i), verbs.WCRecv, want.n)
		if w.Flags&verbs.WCWithImm == 0 || w.Imm() != want.imm {
			c.failf("immediate data %#x arrived as %#x with flags %v", want.imm, w.Imm(), w.Flags)
		}
	}
	c.same(dst.bytes(), src.bytes(), "the message")
}

func sendNothing(c *Case) {
	a, b := c.link()
	dst := c.B.region(64).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())}, RR{id: 10}, RR{id: 11, sg: sg(dst.all())})
	src := c.A.region(64)
	a.send(sendOf(1), sendOf(2), sendOf(3, src.sge(5, 0)))
	for i := range 3 {
		a.sent(a.scq.one(), uint64(1+i), verbs.WCSend)
		b.received(b.rcq.one(), uint64(9+i), verbs.WCRecv, 0)
	}
	c.untouched(dst.bytes(), "the receive buffer of an empty message")
}

func sendScatter(c *Case) {
	a, b := c.link(func(o *opts) { o.sges = 4 })
	src, other := c.A.region(5000).fill(1), c.A.region(300).fill(2)
	dst, more := c.B.region(4000).poison(), c.B.region(4000).poison()
	// Out of order, overlapping at the source, of odd sizes, across packets.
	gather := sg(src.sge(1001, 1703), other.sge(7, 1), src.sge(0, 1101), other.sge(100, 95))
	var want []byte
	want = append(want, src.bytes()[1001:2704]...)
	want = append(want, other.bytes()[7])
	want = append(want, src.bytes()[:1101]...)
	want = append(want, other.bytes()[100:195]...)
	b.recv(RR{id: 9, sg: sg(more.sge(3000, 3), dst.sge(1, 1025), more.sge(0, 1500), dst.sge(2000, 2000))})
	a.send(SR{id: 1, op: verbs.WRSend, flags: signaled, sg: gather})
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, len(want))
	tail := len(want) - 3 - 1025 - 1500
	var got []byte
	got = append(got, more.bytes()[3000:3003]...)
	got = append(got, dst.bytes()[1:1026]...)
	got = append(got, more.bytes()[:1500]...)
	got = append(got, dst.bytes()[2000:2000+tail]...)
	c.same(got, want, "the message gathered and scattered")
	c.untouched(dst.bytes()[2000+tail:], "the last element behind the message")
	c.untouched(dst.bytes()[1026:2000], "memory between the elements")
	c.untouched(more.bytes()[1500:3000], "memory between the elements")
}

func sendEmptyElements(c *Case) {
	a, b := c.link(func(o *opts) { o.sges = 4 })
	src, dst := c.A.region(64).fill(1), c.B.region(64).poison()
	b.recv(RR{id: 9, sg: sg(dst.sge(0, 0), dst.sge(0, 20), dst.sge(30, 0), dst.sge(20, 44))})
	a.send(SR{id: 1, op: verbs.WRSend, flags: signaled, sg: sg(src.sge(0, 30), src.sge(64, 0), src.sge(30, 34), src.sge(0, 0))})
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
	c.same(dst.bytes(), src.bytes(), "the message around empty elements")
}

func sendOrder(c *Case) {
	const n = 64
	a, b := c.link(func(o *opts) { o.sends, o.recvs = n, n })
	src, dst := c.A.region(8*n).fill(1), c.B.region(8*n)
	for i := range n {
		b.recv(RR{id: uint64(1000 + i), sg: sg(dst.sge(8*i, 8))})
	}
	// In lists of different lengths.
	for i := 0; i < n; {
		var list []SR
		for k := 0; k <= i%5 && i < n; k++ {
			list = append(list, sendOf(uint64(i), src.sge(8*i, 8)))
			i++
		}
		a.send(list...)
	}
	for i := range n {
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		b.received(b.rcq.one(), uint64(1000+i), verbs.WCRecv, 8)
	}
	c.same(dst.bytes(), src.bytes(), "the messages in order")
}

func sendTooLong(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(3000).fill(1), c.B.region(4000).poison()
	b.recv(RR{id: 9, sg: sg(dst.sge(0, 2000))}, RR{id: 10, sg: sg(dst.sge(2000, 1000))})
	a.send(sendOf(1, src.all()), sendOf(2, src.sge(0, 8)))
	a.failed(a.scq.one(), 1, verbs.WCRemInvReqErr)
	a.flushed(a.scq, 2)
	b.failed(b.rcq.one(), 9, verbs.WCLocLenErr)
	b.flushed(b.rcq, 10)
	c.bothDead(a, b)
	c.untouched(dst.bytes()[2000:], "memory behind a receive buffer that was too short")
}

func sendBothWays(c *Case) {
	const n = 16
	a, b := c.link(func(o *opts) { o.sends, o.recvs = n, n })
	ra, rb := c.A.region(64*n).fill(1), c.B.region(64*n).fill(2)
	ia, ib := c.A.region(64*n), c.B.region(64*n)
	for i := range n {
		a.recv(RR{id: uint64(i), sg: sg(ia.sge(64*i, 64))})
		b.recv(RR{id: uint64(i), sg: sg(ib.sge(64*i, 64))})
	}
	for i := range n {
		a.send(sendOf(uint64(100+i), ra.sge(64*i, 64)))
		b.send(sendOf(uint64(200+i), rb.sge(64*i, 64)))
	}
	for i := range n {
		a.sent(a.scq.one(), uint64(100+i), verbs.WCSend)
		b.sent(b.scq.one(), uint64(200+i), verbs.WCSend)
		a.received(a.rcq.one(), uint64(i), verbs.WCRecv, 64)
		b.received(b.rcq.one(), uint64(i), verbs.WCRecv, 64)
	}
	c.same(ib.bytes(), ra.bytes(), "what went from A to B")
	c.same(ia.bytes(), rb.bytes(), "what went from B to A")
}

// Two queue pairs of one device, and one connected to itself.
func loopback(c *Case) {
	x, y := c.A.newQP(c.defaults(), psnA), c.A.newQP(c.defaults(), psnB)
	c.connect(x, y)
	self := c.A.newQP(c.defaults(), 77)
	c.connectSelf(self)
	src, dst := c.A.region(64).fill(1), c.A.region(64)
	for _, p := range [][2]*QP{{x, y}, {y, x}, {self, self}} {
		p[1].recv(RR{id: 9, sg: sg(dst.poison().all())})
		p[0].send(sendOf(1, src.all()))
		p[0].sent(p[0].scq.one(), 1, verbs.WCSend)
		p[1].received(p[1].rcq.one(), 9, verbs.WCRecv, 64)
		c.same(dst.bytes(), src.bytes(), "a message within one device")
		p[0].send(writeOf(2, dst, 0, src.sge(32, 32)))
		p[0].sent(p[0].scq.one(), 2, verbs.WCRDMAWrite)
		c.same(dst.bytes()[:32], src.bytes()[32:], "a WRITE within one device")
	}
}

// connectSelf connects a queue pair to itself.
func (c *Case) connectSelf(q *QP) {
	c.t.Helper()
	q.toInit()
	q.toRTR(q.info())
	q.toRTS()
}

// B is connected to A's second queue pair: it must not receive the first one's messages.
func stranger(c *Case) {
	a, b := c.link()
	other := c.A.newQP(c.defaults(), 5000)
	other.o.timeout, other.o.retry = fastTimeout, 1
	other.toInit()
	other.toRTR(Info{QPN: 0xfffff0, PSN: psnB, GID: c.B.gid, LID: c.B.lid}) // no such queue pair
	other.toRTS()
	src, dst := c.A.region(64).fill(1), c.B.region(64).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	other.send(sendOf(1, src.all()))
	other.failed(other.scq.one(), 1, verbs.WCRetryExcErr)
	c.untouched(dst.bytes(), "the receive buffer of a queue pair that is not meant")
	a.send(sendOf(2, src.all()))
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
}

// A queue pair on B's own device, which is not B's peer, knows B's number and the next packet
// number.
func impostor(c *Case) {
	if c.A.gid == c.B.gid {
		c.skipped = "both ends have one address, by which strangers are told"
		c.t.Skip("not applicable: " + c.skipped)
	}
	a, b := c.link()
	x := c.B.newQP(c.defaults(), psnA)
	x.o.timeout, x.o.retry = fastTimeout, 1
	x.toInit()
	x.toRTR(b.info())
	x.toRTS()
	src, forged, dst := c.A.region(64).fill(1), c.B.region(64).fill(2), c.B.region(64).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	x.send(sendOf(1, forged.all()))
	x.failed(x.scq.one(), 1, verbs.WCRetryExcErr)
	b.rcq.none("a packet that is not the peer's is dropped")
	c.untouched(dst.bytes(), "the receive buffer")
	a.send(sendOf(2, src.all()))
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
	c.same(dst.bytes(), src.bytes(), "the peer's message")
}
