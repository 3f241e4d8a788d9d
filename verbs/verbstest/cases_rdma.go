package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var rdmaCases = []Spec{
	{Name: "rc_write_lands_without_notice", Rule: "ibv_post_send(3): RDMA_WRITE", needs: writeOnly, run: writeLands},
	{Name: "rc_write_gathers", Rule: "ibv_post_send(3): sg_list in order", needs: needs{ops: writeOnly.ops, sge: 4}, run: writeGathers},
	{Name: "rc_write_with_imm_consumes_a_receive", Rule: "semantics 6; IBTA 9.4.3: RECV_RDMA_WITH_IMM", needs: writeImm, run: writeImmConsumes},
	{Name: "rc_read_fetches", Rule: "ibv_post_send(3): RDMA_READ", needs: readOnly, run: readFetches},
	{Name: "rc_read_scatters", Rule: "ibv_post_send(3): sg_list in order", needs: needs{ops: readOnly.ops, sge: 4, rdAtom: 1}, run: readScatters},
	{Name: "rc_reads_beyond_rd_atomic_are_queued", Rule: "semantics 42; IBTA 9.7.8", needs: readOnly, run: manyReads},
	{Name: "rc_operations_of_no_bytes_need_no_key", Rule: "IBTA 9.7.4.1.5; rxe check_rkey", needs: everyOp, run: zeroLength},
	{Name: "rc_completions_come_in_posting_order", Rule: "IBTA 10.8.5: one send queue", needs: everyOp, run: mixedOrder},
	{Name: "rc_send_after_write_finds_the_data", Rule: "IBTA 9.5: ordering, table 79", needs: sendWrite, run: sendAfterWrite},
	{Name: "rc_fence_waits_for_reads", Rule: "semantics 38; IBTA 10.8.3.3", needs: needs{ops: verbs.Opcodes(verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead), rdAtom: 1}, run: fenceWaits},
}

func writeLands(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(3000).fill(1), c.B.region(4000).poison()
	b.recv(RR{id: 9, sg: sg(dst.sge(0, 10))})
	a.send(writeOf(1, dst, 500, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	c.same(dst.bytes()[500:3500], src.bytes(), "the WRITE")
	c.untouched(dst.bytes()[:500], "memory before the target")
	c.untouched(dst.bytes()[3500:], "memory behind the target")
	b.rcq.none("a WRITE consumes no receive")
	b.scq.none("a WRITE completes nothing at the responder")
}

func writeGathers(c *Case) {
	a, _ := c.link(func(o *opts) { o.sges = 4 })
	src, dst := c.A.region(6000).fill(1), c.B.region(6000).poison()
	a.send(writeOf(1, dst, 3, src.sge(3000, 2500), src.sge(1, 1), src.sge(0, 0), src.sge(10, 999)))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	want := append([]byte{}, src.bytes()[3000:5500]...)
	want = append(want, src.bytes()[1])
	want = append(want, src.bytes()[10:1009]...)
	c.same(dst.bytes()[3:3503], want, "the WRITE gathered")
	c.untouched(dst.bytes()[3503:], "memory behind the target")
}

// The receive's buffers stay unchanged; byte_len is the length written.
func writeImmConsumes(c *Case) {
	a, b := c.link()
	src, dst, buf := c.A.region(3000).fill(1), c.B.region(3000).poison(), c.B.region(64).poison()
	b.recv(RR{id: 9, sg: sg(buf.all())}, RR{id: 10})
	a.send(writeImmOf(1, 0xa1b2c3d4, dst, 0, src.all()), writeImmOf(2, 7, dst, 0))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
	for i, want := range []struct {
		imm uint32
		n   int
	}{{0xa1b2c3d4, 3000}, {7, 0}} {
		w := b.rcq.one()
		b.received(w, uint64(9+i), verbs.WCRecvRDMAWithImm, want.n)
		if w.Flags&verbs.WCWithImm == 0 || w.Imm() != want.imm {
			c.failf("immediate data %#x arrived as %#x with flags %v", want.imm, w.Imm(), w.Flags)
		}
	}
	c.same(dst.bytes(), src.bytes(), "the WRITE with immediate")
	c.untouched(buf.bytes(), "the buffer of a receive consumed by WRITE with immediate")
}

func readFetches(c *Case) {
	a, b := c.link()
	dst, src := c.A.region(4000).poison(), c.B.region(4000).fill(1)
	a.send(readOf(1, src, 700, dst.sge(33, 3000)))
	w := a.scq.one()
	a.sent(w, 1, verbs.WCRDMARead)
	if w.ByteLen != 3000 {
		c.failf("a READ of 3000 bytes completed with byte_len %d", w.ByteLen)
	}
	c.same(dst.bytes()[33:3033], src.bytes()[700:3700], "the READ")
	c.untouched(dst.bytes()[:33], "memory before the READ's buffer")
	c.untouched(dst.bytes()[3033:], "memory behind the READ's buffer")
	b.rcq.none("a READ completes nothing at the responder")
}

func readScatters(c *Case) {
	a, _ := c.link(func(o *opts) { o.sges = 4 })
	dst, src := c.A.region(6000).poison(), c.B.region(4000).fill(1)
	a.send(readOf(1, src, 0, dst.sge(5000, 1), dst.sge(0, 1025), dst.sge(7, 0), dst.sge(2000, 2500)))
	a.sent(a.scq.one(), 1, verbs.WCRDMARead)
	got := append([]byte{}, dst.bytes()[5000])
	got = append(got, dst.bytes()[:1025]...)
	got = append(got, dst.bytes()[2000:4500]...)
	c.same(got, src.bytes()[:3526], "the READ scattered")
	c.untouched(dst.bytes()[1025:2000], "memory between the elements")
}

func manyReads(c *Case) {
	const n = 24
	a, _ := c.link(func(o *opts) { o.sends, o.rdAtom = n, 1 })
	dst, src := c.A.region(200*n).poison(), c.B.region(200*n).fill(1)
	var list []SR
	for i := range n {
		list = append(list, readOf(uint64(i), src, 200*i, dst.sge(200*i, 200)))
	}
	a.send(list...)
	for i, w := range a.scq.take(n) {
		a.sent(w, uint64(i), verbs.WCRDMARead)
	}
	c.same(dst.bytes(), src.bytes(), "more READs than may be outstanding")
}

func zeroLength(c *Case) {
	a, b := c.link()
	const badKey, badAddr = 0x1234567, 0xdead0000
	b.recv(RR{id: 9})
	list := []SR{
		{id: 1, op: verbs.WRRDMAWrite, flags: signaled, remote: badAddr, rkey: badKey},
		{id: 2, op: verbs.WRRDMARead, flags: signaled, remote: badAddr, rkey: badKey},
		{id: 3, op: verbs.WRRDMAWriteWithImm, flags: signaled, remote: badAddr, rkey: badKey, imm: 5},
	}
	a.send(list...)
	for i, op := range []verbs.WCOpcode{verbs.WCRDMAWrite, verbs.WCRDMARead, verbs.WCRDMAWrite} {
		a.sent(a.scq.one(), uint64(1+i), op)
	}
	b.received(b.rcq.one(), 9, verbs.WCRecvRDMAWithImm, 0)
}

func mixedOrder(c *Case) {
	const n = 42
	a, b := c.link(func(o *opts) { o.sends, o.recvs = n, n })
	r, dst := c.A.region(8*n), c.B.region(8*n)
	want := make([]verbs.WCOpcode, n)
	var list []SR
	for i := range n {
		id, s := uint64(i), r.sge(8*i, 8)
		var q SR
		switch i % 7 {
		case 0:
			q = readOf(id, dst, 8*i, s)
		case 1:
			q = writeOf(id, dst, 8*i, s)
		case 2:
			q = sendOf(id, s)
		case 3:
			q = addOf(id, dst, 8*i, 1, s)
		case 4:
			q = sendImmOf(id, 1, s)
		case 5:
			q = casOf(id, dst, 8*i, 0, 1, s)
		case 6:
			q = writeImmOf(id, 1, dst, 8*i, s)
		}
		b.recv(RR{id: id, sg: sg(c.B.region(8).all())})
		want[i] = q.op.Completion()
		list = append(list, q)
	}
	a.send(list...)
	for i, w := range a.scq.take(n) {
		a.sent(w, uint64(i), want[i])
	}
}

// The receiver of a SEND sees all of an earlier WRITE.
func sendAfterWrite(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(5000).fill(1), c.B.region(5000).poison()
	b.recv(RR{id: 9})
	a.send(writeOf(1, dst, 0, src.all()), sendOf(2))
	b.received(b.rcq.one(), 9, verbs.WCRecv, 0)
	c.same(dst.bytes(), src.bytes(), "the WRITE, when the SEND behind it has arrived")
}

// A fenced SEND and WRITE carry the data that the READ before them fetched.
func fenceWaits(c *Case) {
	a, b := c.link()
	buf := c.A.region(3000).poison()
	from, to, in := c.B.region(3000).fill(1), c.B.region(3000).poison(), c.B.region(3000).poison()
	b.recv(RR{id: 9, sg: sg(in.all())})
	a.send(
		readOf(1, from, 0, buf.all()),
		sendOf(2, buf.all()).with(signaled|verbs.SendFence),
		writeOf(3, to, 0, buf.all()).with(signaled|verbs.SendFence),
	)
	a.sent(a.scq.one(), 1, verbs.WCRDMARead)
	a.sent(a.scq.one(), 2, verbs.WCSend)
	a.sent(a.scq.one(), 3, verbs.WCRDMAWrite)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 3000)
	c.same(in.bytes(), from.bytes(), "the fenced SEND of what was read")
	c.same(to.bytes(), from.bytes(), "the fenced WRITE of what was read")
}
