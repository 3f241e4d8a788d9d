package verbstest

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var xrcCases = []Spec{
	{Name: "xrc_send_reaches_the_queue_it_names", Rule: "IBTA A14.3; ibv_wr_set_xrc_srqn(3)", needs: xrcOnly, run: xrcSends},
	{Name: "xrc_completion_names_the_receiving_queue_pair", Rule: "IBTA A14.4.4", needs: xrcOnly, run: xrcNames},
	{Name: "xrc_write_read_and_atomic_reach_memory", Rule: "IBTA A14.2: the RC operations", needs: xrcOnly.with(func(n *needs) { n.ops |= everyOp.ops; n.rdAtom = 1 }), run: xrcOneSided},
	{Name: "xrc_write_with_imm_takes_a_receive", Rule: "IBTA A14.3.2", needs: xrcOnly.with(func(n *needs) { n.ops |= writeImm.ops }), run: xrcImm},
	{Name: "xrc_unknown_queue_number_is_refused", Rule: "IBTA A14.5: invalid XRC SRQ", needs: xrcOnly, run: xrcUnknown},
	{Name: "xrc_queue_of_another_domain_is_refused", Rule: "IBTA A14.2.2: the domain of the queue pair", needs: xrcOnly, run: xrcForeign},
	{Name: "xrc_empty_queue_is_receiver_not_ready", Rule: "IBTA A14.3, 9.7.5.2.8", needs: xrcOnly, run: xrcRNR},
	{Name: "xrc_queue_numbers_differ", Rule: "ibv_get_srq_num(3)", needs: xrcOnly, run: xrcNumbers},
	{Name: "xrc_receiver_lives_until_its_last_handle_is_closed", Rule: "ibv_open_qp(3)", needs: xrcOnly, run: xrcHandles},
	{Name: "xrc_unknown_receiver_cannot_be_opened", Rule: "ibv_open_qp(3)", needs: xrcOnly, run: xrcOpenUnknown},
	{Name: "xrc_domain_with_children_answers_busy", Rule: "ibv_close_xrcd(3): EBUSY", needs: xrcOnly, run: xrcBusy},
	{Name: "xrc_domain_is_shared_by_its_file", Rule: "ibv_open_xrcd(3): fd, oflags", needs: xrcOnly, run: xrcFile},
	{Name: "xrc_receiver_takes_no_work_requests", Rule: "IBTA A14.2.1: no work queues", needs: xrcOnly, run: xrcNoPosts},
	{Name: "xrc_failed_sender_flushes", Rule: "semantics 34", needs: xrcOnly, run: xrcFlush},
}

func xrcSends(c *Case) {
	a, b, s1, cq1, x := c.xrcPair(4)
	cq2 := c.B.cq(8, nil)
	s2 := c.B.xsrq(x, cq2, 4)
	d1, d2 := s1.fillWith(2, 5000), s2.fillWith(2, 5000)
	one, two := c.A.region(5000).fill(1), c.A.region(5000).fill(2)
	a.send(sendOf(1, one.all()).at(s1), sendOf(2, two.all()).at(s2))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	a.sent(a.scq.one(), 2, verbs.WCSend)
	b.received(cq1.one(), 1, verbs.WCRecv, 5000)
	b.received(cq2.one(), 1, verbs.WCRecv, 5000)
	c.same(d1.bytes()[:5000], one.bytes(), "the message to the first queue")
	c.same(d2.bytes()[:5000], two.bytes(), "the message to the second queue")
	cq1.none("one message to each")
	cq2.none("one message to each")
}

// Two senders, two receivers, one queue.
func xrcNames(c *Case) {
	a, b, s, cq, x := c.xrcPair(4)
	a2, b2 := c.xrcLink(x)
	s.fillWith(4, 8)
	src := c.A.region(8)
	for i, p := range []struct{ a, b *QP }{{a, b}, {a2, b2}, {a, b}} {
		p.a.send(sendOf(uint64(i), src.all()).at(s))
		p.a.sent(p.a.scq.one(), uint64(i), verbs.WCSend)
		w := cq.one()
		p.b.received(w, w.WRID, verbs.WCRecv, 8)
	}
}

func xrcOneSided(c *Case) {
	a, _, s, cq, _ := c.xrcPair(4)
	src, dst, got, res := c.A.region(5000).fill(1), c.B.region(5000), c.A.region(5000), c.A.region(16)
	words := c.B.region(8)
	*words.word(0) = 5
	a.send(writeOf(1, dst, 0, src.all()).at(s), readOf(2, dst, 0, got.all()).at(s),
		addOf(3, words, 0, 2, res.sge(0, 8)).at(s), casOf(4, words, 0, 7, 9, res.sge(8, 8)).at(s))
	for i, op := range []verbs.WCOpcode{verbs.WCRDMAWrite, verbs.WCRDMARead, verbs.WCFetchAdd, verbs.WCCompSwap} {
		a.sent(a.scq.one(), uint64(i+1), op)
	}
	c.same(dst.bytes(), src.bytes(), "a WRITE")
	c.same(got.bytes(), src.bytes(), "a READ of what the WRITE before it wrote")
	if *res.word(0) != 5 || *res.word(8) != 7 || *words.word(0) != 9 {
		c.failf("5 plus 2, then 7 to 9: returned %d and %d, left %d", *res.word(0), *res.word(8), *words.word(0))
	}
	cq.none("one-sided operations take no receive")
}

func xrcImm(c *Case) {
	a, b, s, cq, _ := c.xrcPair(4)
	s.fillWith(1, 8)
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	a.send(writeImmOf(1, 77, dst, 0, src.all()).at(s))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	w := cq.one()
	b.received(w, 1, verbs.WCRecvRDMAWithImm, 64)
	if w.Imm() != 77 {
		c.failf("immediate data 77 came as %d", w.Imm())
	}
	c.same(dst.bytes(), src.bytes(), "the WRITE")
}

// xrcRefusal: the annex does not specify the NAK.
var xrcRefusal = []verbs.WCStatus{verbs.WCRemInvReqErr, verbs.WCRemOpErr, verbs.WCRemAccessErr}

func xrcUnknown(c *Case) {
	a, _, s, cq, _ := c.xrcPair(4)
	s.fillWith(1, 8)
	r := sendOf(1, c.A.region(8).all())
	r.srqn = s.Num() ^ 0x1555
	a.send(r)
	a.failed(a.scq.one(), 1, xrcRefusal...)
	cq.none("the message was for another queue")
}

func xrcForeign(c *Case) {
	a, _, _, cq, _ := c.xrcPair(4)
	other := c.B.xsrq(c.B.xrcd(), cq, 4)
	dst := other.fillWith(1, 8)
	a.send(sendOf(1, c.A.region(8).all()).at(other))
	a.failed(a.scq.one(), 1, xrcRefusal...)
	cq.none("the queue belongs to another domain")
	c.untouched(dst.bytes(), "a receive of another domain")
}

func xrcRNR(c *Case) {
	a, b, s, cq, _ := c.xrcPair(4, func(o *opts) { o.rnrTimer = fastRNR })
	a.send(sendOf(1, c.A.region(8).all()).at(s))
	a.scq.none("the shared queue is empty")
	s.fillWith(1, 8)
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(cq.one(), 1, verbs.WCRecv, 8)
}

func xrcNumbers(c *Case) {
	x, cq := c.A.xrcd(), c.A.cq(8, nil)
	seen := map[uint32]bool{}
	for range 8 {
		n := c.A.xsrq(x, cq, 1).Num()
		if n == 0 || n > maxPSN || seen[n] {
			c.failf("the number %#x of an XRC shared queue is 0, too large or used twice", n)
		}
		seen[n] = true
	}
	if n := c.A.srq(1).Num(); n != 0 {
		c.failf("a shared queue that is no XRC one has the number %#x", n)
	}
}

func xrcHandles(c *Case) {
	a, b, s, cq, x := c.xrcPair(4)
	s.fillWith(2, 8)
	src := c.A.region(8)
	h, err := x.OpenQP(b.Num(), 0x77)
	c.must(err, "open_qp")
	c.defers(h.Close)
	if h.Num() != b.Num() || h.UserData() != 0x77 || h.Type() != verbs.QPTXRCRecv {
		c.failf("opening QP %#x gave QP %#x of type %v, user data %#x", b.Num(), h.Num(), h.Type(), h.UserData())
	}
	c.must(b.Close(), "closing the handle it was made with")
	a.send(sendOf(1, src.all()).at(s))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	if w := cq.one(); w.Status != verbs.WCSuccess {
		c.failf("with one handle left a message completed as %s", show(w))
	}
	c.must(h.Close(), "closing the last handle")
	_, err = x.OpenQP(b.Num(), 0)
	c.refused(err, "open_qp of a queue pair whose last handle was closed")
}

func xrcOpenUnknown(c *Case) {
	_, b, _, _, _ := c.xrcPair(4)
	_, err := c.B.xrcd().OpenQP(b.Num(), 0)
	c.refused(err, "open_qp through another domain")
	rc := c.B.newQP(c.defaults(), psnB)
	_, err = c.B.xrcd().OpenQP(rc.Num(), 0)
	c.refused(err, "open_qp of an RC queue pair")
}

func xrcBusy(c *Case) {
	x := c.B.xrcd()
	q := c.B.xrecv(x)
	c.refused(x.Close(), "closing a domain with a queue pair", verbs.ErrBusy)
	c.must(q.Close(), "destroy_qp")
	s := c.B.xsrq(x, c.B.cq(4, nil), 1)
	c.refused(x.Close(), "closing a domain with a shared queue", verbs.ErrBusy)
	c.must(s.Close(), "destroy_srq")
	c.must(x.Close(), "closing a domain without children")
	c.must(x.Close(), "closing it again")
}

func xrcFile(c *Case) {
	ctx, err := c.B.ep.Provider.Open(c.B.ctx.Device().Name)
	c.must(err, "opening the device again")
	c.defers(ctx.Close)
	f, err := os.Create(filepath.Join(c.t.TempDir(), "domain"))
	c.must(err, "making a file")
	c.defers(f.Close)
	fd := int(f.Fd())
	_, err = ctx.OpenXRCD(fd, 0)
	if err != nil {
		c.unsupported(err)
	}
	c.refused(err, "open_xrcd without O_CREAT of a file that no domain has")
	x, err := c.B.ctx.OpenXRCD(fd, os.O_CREATE)
	c.unsupported(err)
	c.must(err, "open_xrcd with O_CREAT")
	c.defers(x.Close)
	_, err = ctx.OpenXRCD(fd, os.O_CREATE|os.O_EXCL)
	c.refused(err, "open_xrcd with O_EXCL of a file that a domain has")
	y, err := ctx.OpenXRCD(fd, 0)
	c.must(err, "open_xrcd of a shared domain")
	c.defers(y.Close)
	q := c.B.xrecv(x)
	h, err := y.OpenQP(q.Num(), 0)
	c.must(err, "open_qp through the other context")
	c.must(h.Close(), "closing the handle of the other context")
}

func xrcNoPosts(c *Case) {
	_, b, _, _, _ := c.xrcPair(4)
	r := c.B.region(8)
	n, err := b.trySend(sendOf(1, r.all()))
	if n != 0 || err == nil {
		c.failf("an XRC_RECV queue pair took %d sends", n)
	}
	c.wantErrno(err, "post_send to an XRC_RECV queue pair", syscall.EINVAL, syscall.EOPNOTSUPP)
	n, err = b.tryRecv(RR{id: 1, sg: sg(r.all())})
	if n != 0 || err == nil {
		c.failf("an XRC_RECV queue pair took %d receives", n)
	}
	c.wantErrno(err, "post_recv to an XRC_RECV queue pair", syscall.EINVAL, syscall.EOPNOTSUPP)
}

func xrcFlush(c *Case) {
	a, _, s, cq, _ := c.xrcPair(4)
	s.fillWith(1, 8)
	src := c.A.region(8)
	bad := src.all()
	bad.LKey ^= 0x00c0ffee
	a.send(sendOf(1, bad).at(s), sendOf(2, src.all()).at(s))
	a.failed(a.scq.one(), 1, verbs.WCLocProtErr)
	a.flushed(a.scq, 2)
	a.untilState(verbs.QPSErr)
	cq.none("nothing was sent")
}
