package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var ucCases = []Spec{
	{Name: "uc_messages_of_every_kind_arrive", Rule: "IBTA 9.8.2, table 42", needs: ucAll, run: ucArrives},
	{Name: "uc_completes_without_the_peer", Rule: "IBTA 9.8.2: unacknowledged", needs: ucSend, run: ucNoPeer},
	{Name: "uc_without_a_receive_is_dropped", Rule: "IBTA 9.8.2: no RNR; rxe RESPST_ERR_RNR, class D", needs: ucSend, run: ucNoReceive},
	{Name: "uc_message_with_a_hole_is_dropped_whole", Rule: "IBTA 9.8.2.2.1; rxe check_psn", needs: ucSend.onPackets(), run: ucHole},
	{Name: "uc_write_with_imm_with_a_hole_completes_nothing", Rule: "IBTA 9.8.2.2.1", needs: ucAll.onPackets(), run: ucWriteHole},
	{Name: "uc_lost_message_leaves_the_others", Rule: "IBTA 9.8.2.2.1: a new message begins anywhere", needs: ucSend.onPackets(), run: ucLost},
	{Name: "uc_reads_and_atomics_are_refused", Rule: "IBTA table 42", needs: ucSend, run: ucOpcodes},
	{Name: "uc_wrong_key_is_dropped", Rule: "IBTA 9.8.2.2.3; rxe RESPST_ERR_RKEY_VIOLATION, class E", needs: ucAll, run: ucWrongKey},
	{Name: "uc_write_without_permission_is_dropped", Rule: "IBTA 9.8.2.2.3; rxe check_op_valid", needs: ucAll, run: ucNoWrite},
	{Name: "uc_receive_too_small_is_no_success", Rule: "IBTA 9.8.2.2.4; rxe RESPST_ERR_LENGTH", needs: ucSend, run: ucTooSmall},
	{Name: "uc_buffer_is_free_at_the_completion", Rule: "IBTA 10.8.5: ownership", needs: ucSend, run: ucOwnership},
	{Name: "uc_unsignaled_requests_are_silent", Rule: "semantics 30; ibv_post_send(3)", needs: ucSend, run: ucSilent},
	{Name: "uc_err_flushes_what_is_posted", Rule: "semantics 34; IBTA 10.3.1.7", needs: ucSend, run: ucFlush},
}

func uc(o *opts) { o.kind = verbs.QPTUC }

func ucArrives(c *Case) {
	a, b := c.link(uc)
	for _, n := range []int{0, 1, 64, 5000, 20000} {
		mem, dst := c.A.region(n+8).fill(n), c.B.region(n+8).poison()
		src, want := mem.sge(0, n), mem.bytes()[:n]
		b.recv(RR{id: 7, sg: sg(dst.all())})
		a.send(sendOf(1, src))
		a.sent(a.scq.one(), 1, verbs.WCSend)
		b.received(b.rcq.one(), 7, verbs.WCRecv, n)
		c.same(dst.bytes()[:n], want, "a SEND")
		c.untouched(dst.bytes()[n:], "the memory behind a SEND")
		b.recv(RR{id: 8, sg: sg(dst.all())})
		a.send(sendImmOf(2, 0xabc, src))
		a.sent(a.scq.one(), 2, verbs.WCSend)
		w := b.rcq.one()
		b.received(w, 8, verbs.WCRecv, n)
		if w.Flags&verbs.WCWithImm == 0 || w.Imm() != 0xabc {
			c.failf("immediate data 0xabc came as %#x, flags %v", w.Imm(), w.Flags)
		}
		dst.poison()
		b.recv(RR{id: 9})
		a.send(writeOf(3, dst, 0, src), writeImmOf(4, 0xdef, dst, 0, src))
		a.sent(a.scq.one(), 3, verbs.WCRDMAWrite)
		a.sent(a.scq.one(), 4, verbs.WCRDMAWrite)
		w = b.rcq.one()
		b.received(w, 9, verbs.WCRecvRDMAWithImm, n)
		if w.Imm() != 0xdef {
			c.failf("immediate data 0xdef came as %#x", w.Imm())
		}
		c.same(dst.bytes()[:n], want, "a WRITE")
		c.untouched(dst.bytes()[n:], "the memory behind a WRITE")
	}
}

func ucNoPeer(c *Case) {
	a, b := c.link(uc)
	src := c.A.region(64)
	c.must(b.Close(), "destroy_qp")
	a.send(sendOf(1, src.all()), sendOf(2, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	a.sent(a.scq.one(), 2, verbs.WCSend)
	if s := a.state(); s != verbs.QPSRTS {
		c.failf("sending to nobody moved the queue pair to %v", s)
	}
}

func ucNoReceive(c *Case) {
	a, b := c.link(uc)
	src, dst := c.A.region(16).fill(1), c.B.region(8).poison()
	a.send(sendOf(1, src.sge(0, 8)))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	c.arrives()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	b.rcq.none("the message came before the receive, and is gone")
	a.send(sendOf(2, src.sge(8, 8)))
	a.sent(a.scq.one(), 2, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 8)
	c.same(dst.bytes(), src.bytes()[8:], "the message after the lost one")
}

// The receive of a message that broke off is used for the next (rxe do_class_d1e_error; the
// specification lets an adapter do so).
func ucHole(c *Case) {
	for drop := uint64(1); drop <= 3; drop++ {
		a, b := c.link(func(o *opts) { uc(o); o.mtu = min(o.mtu, verbs.MTU1024) })
		src, dst := c.A.region(3000).fill(int(drop)), c.B.region(3000).poison()
		b.recv(RR{id: 8, sg: sg(dst.all())})
		c.fault(c.A, c.B, Fault{Drop: []uint64{drop}})
		a.send(sendOf(1, src.all()))
		a.sent(a.scq.one(), 1, verbs.WCSend)
		b.rcq.none("a message that lost a packet is no message")
		a.send(sendOf(2, src.sge(0, 2500)))
		a.sent(a.scq.one(), 2, verbs.WCSend)
		b.received(b.rcq.one(), 8, verbs.WCRecv, 2500)
		c.same(dst.bytes()[:2500], src.bytes()[:2500], "the message after a broken one")
	}
}

func ucWriteHole(c *Case) {
	for drop := uint64(1); drop <= 3; drop++ {
		a, b := c.link(func(o *opts) { uc(o); o.mtu = min(o.mtu, verbs.MTU1024) })
		src, dst := c.A.region(3000).fill(int(drop)), c.B.region(3000)
		b.recv(RR{id: 8})
		c.fault(c.A, c.B, Fault{Drop: []uint64{drop}})
		a.send(writeImmOf(1, 1, dst, 0, src.all()))
		a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
		b.rcq.none("the WRITE lost a packet")
		a.send(writeImmOf(2, 2, dst, 0, src.all()))
		a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
		w := b.rcq.one()
		b.received(w, 8, verbs.WCRecvRDMAWithImm, 3000)
		if w.Imm() != 2 {
			c.failf("the second WRITE's immediate data came as %d", w.Imm())
		}
		c.same(dst.bytes(), src.bytes(), "the WRITE after a broken one")
	}
}

func ucLost(c *Case) {
	a, b := c.link(uc)
	src, dst := c.A.region(40).fill(1), c.B.region(40).poison()
	c.fault(c.A, c.B, Fault{Drop: []uint64{2, 3}})
	for i := range 5 {
		b.recv(RR{id: uint64(i), sg: sg(dst.sge(8*i, 8))})
	}
	for i := range 5 {
		a.send(sendOf(uint64(i), src.sge(8*i, 8)))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		c.settle()
	}
	for i, sent := range []int{0, 3, 4} {
		b.received(b.rcq.one(), uint64(i), verbs.WCRecv, 8)
		c.same(dst.bytes()[8*i:8*i+8], src.bytes()[8*sent:8*sent+8], "a message that was not lost")
	}
	b.rcq.none("two messages were lost")
}

func ucOpcodes(c *Case) {
	local, dst := c.A.region(64), c.B.region(64).poison()
	for _, r := range []SR{readOf(1, dst, 0, local.all()), casOf(1, dst, 0, 1, 2, local.sge(0, 8)), addOf(1, dst, 0, 1, local.sge(0, 8))} {
		a, _ := c.link(uc)
		a.failsSomehow(r.op.String()+" on a UC queue pair", r, verbs.WCLocQPOpErr)
	}
	c.untouched(dst.bytes(), "memory that a UC queue pair cannot read or add to")
}

// dropped posts a WRITE that the peer must drop, and checks that the next one passes.
func (c *Case) dropped(a *QP, r SR, target *Region) {
	c.t.Helper()
	a.send(r)
	a.sent(a.scq.one(), r.id, verbs.WCRDMAWrite)
	c.settle()
	c.untouched(target.bytes(), "the target of a WRITE that must be dropped")
}

func ucWrongKey(c *Case) {
	a, _ := c.link(uc)
	src, dst := c.A.region(3000).fill(1), c.B.region(3000).poison()
	r := writeOf(1, dst, 0, src.all())
	c.dropped(a, r.key(r.rkey^0x00c0ffee), dst)
	r.remote++
	c.dropped(a, r, dst)
	if s := a.state(); s != verbs.QPSRTS {
		c.failf("a dropped WRITE moved its sender to %v", s)
	}
}

func ucNoWrite(c *Case) {
	a, _ := c.link(func(o *opts) { uc(o); o.access = verbs.AccessLocalWrite })
	src, dst := c.A.region(64).fill(1), c.B.region(64).poison()
	c.dropped(a, writeOf(1, dst, 0, src.all()), dst)
	a, _ = c.link(uc)
	ro := c.B.regionOf(c.B.pd, 64, verbs.AccessRemoteRead, 0).poison()
	c.dropped(a, writeOf(2, ro, 0, src.all()), ro)
}

func ucTooSmall(c *Case) {
	a, b := c.link(uc)
	src, dst := c.A.region(3000).fill(1), c.B.region(4000).poison()
	b.recv(RR{id: 9, sg: sg(dst.sge(0, 2990))})
	a.send(sendOf(1, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	c.settle()
	for b.rcq.poll() > 0 {
	}
	for _, w := range b.rcq.got {
		b.failed(w, 9, verbs.WCLocLenErr, verbs.WCRemInvReqErr)
	}
	c.untouched(dst.bytes()[2990:], "the memory behind a receive that is too small")
}

func ucOwnership(c *Case) {
	a, b := c.link(uc)
	src, dst := c.A.region(5000).fill(1), c.B.region(5000)
	want := append([]byte{}, src.bytes()...)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	src.poison()
	b.received(b.rcq.one(), 9, verbs.WCRecv, 5000)
	c.same(dst.bytes(), want, "a message whose buffer was reused after its completion")
}

func ucSilent(c *Case) {
	a, b := c.link(uc)
	src, dst := c.A.region(8).fill(1), c.B.region(8)
	b.recv(RR{id: 8, sg: sg(dst.all())}, RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()).with(0), sendOf(2, src.all()))
	a.sent(a.scq.one(), 2, verbs.WCSend)
	b.rcq.take(2)
	a.scq.none("the first request was not signaled")
}

func ucFlush(c *Case) {
	a, _ := c.link(uc)
	r := c.A.region(64)
	a.recv(RR{id: 11, sg: sg(r.all())}, RR{id: 12, sg: sg(r.all())})
	a.to(verbs.QPSErr)
	a.flushed(a.rcq, 11, 12)
	a.send(sendOf(1, r.all()))
	a.flushed(a.scq, 1)
}
