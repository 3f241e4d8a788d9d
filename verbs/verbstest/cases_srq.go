package verbstest

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var (
	srqOnly = needs{srq: true, ops: verbs.Opcodes(verbs.WRSend)}
	srqImm  = needs{srq: true, ops: verbs.Opcodes(verbs.WRSend, verbs.WRRDMAWriteWithImm)}
)

var srqCases = []Spec{
	{Name: "srq_serves_several_queue_pairs", Rule: "semantics 33; IBTA 10.2.9", needs: srqOnly, run: srqServes},
	{Name: "srq_receives_complete_at_their_queue_pairs_queue", Rule: "semantics 33; IBTA 10.2.9.3", needs: srqOnly, run: srqOwnCQ},
	{Name: "srq_queue_pair_has_no_receive_queue_of_its_own", Rule: "semantics 33; ibv_post_recv(3): EINVAL with an SRQ", needs: srqOnly, run: srqOwnRQ},
	{Name: "srq_queue_pair_ignores_the_receives_asked_for", Rule: "semantics 33; ibv_create_qp(3): max_recv_wr is ignored", needs: srqOnly, run: srqIgnored},
	{Name: "srq_full_is_enomem", Rule: "semantics 22, 23; ibv_post_srq_recv(3)", needs: srqOnly, run: srqFull},
	{Name: "srq_bad_wr_splits_a_list", Rule: "semantics 22; invariant 7", needs: srqOnly, run: srqSplits},
	{Name: "srq_places_are_free_again_in_any_order", Rule: "semantics 33: unordered", needs: srqOnly, run: srqReuse},
	{Name: "srq_write_with_imm_takes_one_receive", Rule: "IBTA 9.4.3; semantics 33", needs: srqImm, run: srqWriteImm},
	{Name: "srq_empty_is_receiver_not_ready", Rule: "IBTA 9.7.5.2.8; semantics 19", needs: srqOnly, run: srqRNR},
	{Name: "srq_empty_for_too_long_is_rnr_retry_exceeded", Rule: "IBTA 9.7.5.2.8; semantics 19", needs: srqOnly, run: srqRNRExceeded},
	{Name: "srq_with_queue_pairs_answers_busy", Rule: "semantics 33; ibv_destroy_srq(3): EBUSY", needs: srqOnly, run: srqBusy},
	{Name: "srq_is_counted_and_keeps_its_domain", Rule: "contract: Context.Objects; ibv_dealloc_pd(3)", needs: srqOnly, run: srqCounted},
	{Name: "srq_beyond_the_limits_is_refused", Rule: "ibv_create_srq(3): EINVAL, ENOMEM", needs: srqOnly, run: srqLimits},
	{Name: "srq_query_reads_what_was_granted", Rule: "ibv_query_srq(3)", needs: srqOnly, run: srqQuery},
	{Name: "srq_resize_keeps_what_is_posted", Rule: "ibv_modify_srq(3): IBV_SRQ_MAX_WR", needs: srqOnly.with(func(n *needs) { n.caps = verbs.CapSRQResize }), run: srqResize},
	{Name: "srq_receives_outlive_a_failed_queue_pair", Rule: "semantics 33, 34; IBTA 10.2.9.5", needs: srqOnly, run: srqOutlives},
	{Name: "srq_receives_outlive_a_destroyed_queue_pair", Rule: "semantics 33, 34; IBTA 10.2.9.5", needs: srqOnly, run: srqDestroyed},
	{Name: "srq_bad_receive_fails_its_taker_only", Rule: "IBTA 10.2.9.4; rxe RESPST_ERR_MALFORMED_WQE", needs: srqOnly, run: srqBadReceive},
	{Name: "srq_serves_uc", Rule: "IBTA 10.2.9: RC, UC and UD", needs: needs{srq: true, kinds: []verbs.QPType{verbs.QPTUC}, ops: srqOnly.ops}, run: srqUC},
	{Name: "srq_serves_ud", Rule: "IBTA 10.2.9: RC, UC and UD; semantics 32", needs: needs{srq: true, ah: true, kinds: []verbs.QPType{verbs.QPTUD}, ops: srqOnly.ops}, run: srqUD},
}

// shared links n queue pairs of A with as many of B that share a receive queue of size receives.
func (c *Case) shared(n, size int, mod ...func(*opts)) (as, bs []*QP, s *SRQ) {
	c.t.Helper()
	s = c.B.srq(size)
	for range n {
		o := c.defaults()
		for _, m := range mod {
			m(&o)
		}
		a := c.A.newQP(o, psnA)
		o.srq = s
		b := c.B.newQP(o, psnB)
		c.connect(a, b)
		as, bs = append(as, a), append(bs, b)
	}
	return as, bs, s
}

// fromSRQ checks a receive that was taken from a shared queue: any of them, but each once.
func (q *QP) fromSRQ(w verbs.WC, op verbs.WCOpcode, n int, seen map[uint64]bool) {
	q.c.t.Helper()
	q.received(w, w.WRID, op, n)
	if seen[w.WRID] {
		q.c.failf("receive %d of the shared queue completed twice", w.WRID)
	}
	seen[w.WRID] = true
}

func srqServes(c *Case) {
	const n, size = 3, 12
	as, bs, s := c.shared(n, size)
	dst := s.fillWith(size, 64)
	src, seen := c.A.region(64).fill(1), map[uint64]bool{}
	for i := range size {
		a, b := as[i%n], bs[i%n]
		src.fill(i)
		a.send(sendOf(uint64(i), src.all()))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		w := b.rcq.one()
		b.fromSRQ(w, verbs.WCRecv, 64, seen)
		at := 64 * (int(w.WRID) - 1)
		c.same(dst.bytes()[at:at+64], src.bytes(), "the message in the receive that its completion names")
	}
	if len(seen) != size {
		c.failf("%d receives were posted, %d completed", size, len(seen))
	}
}

func srqOwnCQ(c *Case) {
	as, bs, s := c.shared(2, 4)
	s.fillWith(4, 8)
	src := c.A.region(8)
	as[1].send(sendOf(1, src.all()))
	bs[1].fromSRQ(bs[1].rcq.one(), verbs.WCRecv, 8, map[uint64]bool{})
	bs[0].rcq.none("the other queue pair received")
}

func srqOwnRQ(c *Case) {
	_, bs, s := c.shared(1, 4)
	n, err := bs[0].tryRecv(RR{id: 1, sg: sg(c.B.region(8).all())})
	if n != 0 || err == nil {
		c.failf("a queue pair with a shared receive queue took %d receives of its own", n)
	}
	c.wantErrno(err, "post_recv to a queue pair with a shared receive queue", syscall.EINVAL)
	got, err := s.Query()
	c.must(err, "query_srq")
	if got.MaxWR < 4 {
		c.failf("the shared queue has %d places", got.MaxWR)
	}
}

func srqIgnored(c *Case) {
	d, err := c.B.ctx.QueryDevice()
	c.must(err, "query_device")
	s := c.B.srq(4)
	o := c.defaults()
	o.srq = s
	cq := c.B.cq(4, nil)
	init := &verbs.QPInitAttr{SendCQ: cq.CQ, RecvCQ: cq.CQ, SRQ: s.SRQ, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1, MaxRecvWR: uint32(d.MaxQPWR) + 1, MaxRecvSGE: uint32(d.MaxSGE) + 1}}
	qp, err := c.B.pd.CreateQP(init)
	c.must(err, "create_qp with a shared receive queue and impossible max_recv_wr, which is ignored")
	c.defers(qp.Close)
	if got := qp.InitAttr(); got.SRQ != s.SRQ {
		c.failf("the queue pair does not name its shared receive queue: %+v", got)
	}
}

func srqFull(c *Case) {
	s := c.B.srq(4)
	q, err := s.Query()
	c.must(err, "query_srq")
	var list []RR
	for i := range int(q.MaxWR) + 2 {
		list = append(list, RR{id: uint64(i)})
	}
	n, err := s.tryRecv(list...)
	if n != int(q.MaxWR) {
		c.failf("a shared queue of %d took %d receives", q.MaxWR, n)
	}
	c.wantErrno(err, "a full shared queue", syscall.ENOMEM)
}

func srqSplits(c *Case) {
	as, bs, s := c.shared(1, 8)
	dst, src := c.B.region(64), c.A.region(8)
	got, err := s.Query()
	c.must(err, "query_srq")
	bad := RR{id: 2}
	for range got.MaxSGE + 1 {
		bad.sg = append(bad.sg, dst.sge(0, 1))
	}
	n, err := s.tryRecv(RR{id: 1, sg: sg(dst.all())}, bad, RR{id: 3, sg: sg(dst.all())})
	if n != 1 {
		c.failf("the list is bad at 1, %d were accepted", n)
	}
	c.wantErrno(err, "a receive with too many elements", syscall.EINVAL, syscall.ENOMEM)
	s.recv(RR{id: 4, sg: sg(dst.all())})
	seen := map[uint64]bool{}
	for i := range 2 {
		as[0].send(sendOf(uint64(i), src.all()))
		bs[0].fromSRQ(bs[0].rcq.one(), verbs.WCRecv, 8, seen)
	}
	if !seen[1] || !seen[4] {
		c.failf("receives 1 and 4 were posted, %v completed", seen)
	}
}

// Messages of several queue pairs take receives in turn and complete in another order than the
// receives were posted; all slots can be reused many times.
func srqReuse(c *Case) {
	const n, size, rounds = 3, 4, 40
	as, bs, s := c.shared(n, size)
	dst, src := c.B.region(3000*size), c.A.region(3000).fill(1)
	for i := range size {
		s.recv(RR{id: uint64(i), sg: sg(dst.sge(3000*i, 3000))})
	}
	for round := range rounds {
		long, short := as[round%n], as[(round+1)%n]
		long.send(sendOf(1, src.all()))
		short.send(sendOf(2, src.sge(0, 8)))
		for _, x := range []struct{ a, b *QP }{{short, bs[(round+1)%n]}, {long, bs[round%n]}} {
			x.a.scq.one()
			w := x.b.rcq.one()
			if w.Status != verbs.WCSuccess {
				c.failf("round %d: %s", round, show(w))
			}
			s.recv(RR{id: w.WRID, sg: sg(dst.sge(3000*int(w.WRID), 3000))})
		}
	}
}

func srqWriteImm(c *Case) {
	as, bs, s := c.shared(1, 4)
	s.fillWith(2, 8)
	src, dst, seen := c.A.region(64).fill(1), c.B.region(64), map[uint64]bool{}
	as[0].send(writeImmOf(1, 7, dst, 0, src.all()))
	w := bs[0].rcq.one()
	bs[0].fromSRQ(w, verbs.WCRecvRDMAWithImm, 64, seen)
	if w.Imm() != 7 {
		c.failf("immediate data 7 came as %d", w.Imm())
	}
	as[0].send(sendOf(2, src.sge(0, 8)))
	bs[0].fromSRQ(bs[0].rcq.one(), verbs.WCRecv, 8, seen)
	c.same(dst.bytes(), src.bytes(), "the WRITE")
}

func srqRNR(c *Case) {
	as, bs, s := c.shared(1, 4, func(o *opts) { o.rnrRetry, o.rnrTimer = verbs.RNRRetryInfinite, fastRNR })
	as[0].send(sendOf(1, c.A.region(8).all()))
	as[0].scq.none("the shared queue is empty")
	s.fillWith(1, 8)
	as[0].sent(as[0].scq.one(), 1, verbs.WCSend)
	bs[0].received(bs[0].rcq.one(), 1, verbs.WCRecv, 8)
}

func srqRNRExceeded(c *Case) {
	as, bs, s := c.shared(2, 4, func(o *opts) { o.rnrRetry, o.rnrTimer = 1, fastRNR })
	src := c.A.region(8)
	as[0].send(sendOf(1, src.all()))
	as[0].failed(as[0].scq.one(), 1, verbs.WCRNRRetryExcErr)
	s.fillWith(1, 8)
	as[1].send(sendOf(2, src.all()))
	as[1].sent(as[1].scq.one(), 2, verbs.WCSend)
	bs[1].received(bs[1].rcq.one(), 1, verbs.WCRecv, 8)
}

func srqOutlives(c *Case) {
	as, bs, s := c.shared(2, 4)
	s.fillWith(3, 8)
	bs[0].to(verbs.QPSErr)
	bs[0].rcq.none("what is in the shared queue is not the failed queue pair's")
	src, seen := c.A.region(8), map[uint64]bool{}
	for i := range 3 {
		as[1].send(sendOf(uint64(i), src.all()))
		as[1].sent(as[1].scq.one(), uint64(i), verbs.WCSend)
		bs[1].fromSRQ(bs[1].rcq.one(), verbs.WCRecv, 8, seen)
	}
}

func srqDestroyed(c *Case) {
	as, bs, s := c.shared(2, 4)
	s.fillWith(2, 8)
	src, seen := c.A.region(8), map[uint64]bool{}
	as[0].send(sendOf(1, src.all()))
	bs[0].fromSRQ(bs[0].rcq.one(), verbs.WCRecv, 8, seen)
	c.must(bs[0].Close(), "destroy_qp")
	as[1].send(sendOf(2, src.all()))
	bs[1].fromSRQ(bs[1].rcq.one(), verbs.WCRecv, 8, seen)
	bs[0].rcq.none("the queue pair is gone")
}

func srqBadReceive(c *Case) {
	as, bs, s := c.shared(2, 4)
	dst, src := c.B.region(64).poison(), c.A.region(8)
	bad := dst.sge(0, 8)
	bad.LKey ^= 0x00c0ffee
	s.recv(RR{id: 1, sg: sg(bad)})
	as[0].send(sendOf(1, src.all()))
	bs[0].failed(bs[0].rcq.one(), 1, verbs.WCLocProtErr, verbs.WCLocQPOpErr)
	as[0].failed(as[0].scq.one(), 1, verbs.WCRemOpErr)
	c.bothDead(as[0], bs[0])
	c.untouched(dst.bytes(), "the memory around a wrong receive")
	s.recv(RR{id: 2, sg: sg(dst.sge(0, 8))})
	as[1].send(sendOf(2, src.all()))
	bs[1].received(bs[1].rcq.one(), 2, verbs.WCRecv, 8)
}

func srqUC(c *Case) {
	as, bs, s := c.shared(2, 4, uc)
	dst := s.fillWith(2, 64)
	src, seen := c.A.region(64).fill(1), map[uint64]bool{}
	for i, a := range as {
		a.send(sendOf(uint64(i), src.all()))
		w := bs[i].rcq.one()
		bs[i].fromSRQ(w, verbs.WCRecv, 64, seen)
		at := 64 * (int(w.WRID) - 1)
		c.same(dst.bytes()[at:at+64], src.bytes(), "a UC message in a shared receive")
	}
}

func srqUD(c *Case) {
	s := c.B.srq(4)
	dst := s.fillWith(2, 64)
	a, ah := c.A.ud(), c.A.ah(c.B.gid)
	src, seen := c.A.region(16).fill(1), map[uint64]bool{}
	for i := range 2 {
		b := c.B.ud(func(o *opts) { o.srq = s })
		a.send(sendOf(uint64(i), src.all()).to(ah, b.Num(), udKey))
		w := b.rcq.one()
		b.fromSRQ(w, verbs.WCRecv, grhSize+16, seen)
		at := 64*(int(w.WRID)-1) + grhSize
		c.same(dst.bytes()[at:at+16], src.bytes(), "a datagram in a shared receive")
	}
}
