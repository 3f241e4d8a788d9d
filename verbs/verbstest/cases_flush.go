package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var flushCases = []Spec{
	{Name: "err_flushes_both_queues_in_order", Rule: "semantics 34; IBTA 10.3.1.7", needs: sendOnly, run: errFlushes},
	{Name: "posts_in_err_are_accepted_and_flushed", Rule: "IBTA 10.3.1.7: C10-42", needs: sendOnly, run: postInErr},
	{Name: "first_error_is_the_cause_and_the_rest_flushes", Rule: "semantics 34", needs: writeOnly, run: firstErrorIsCause},
	{Name: "work_before_the_error_has_completed", Rule: "IBTA 10.8.2.1; semantics 34", needs: writeOnly, run: workBeforeError},
	{Name: "unsignaled_error_and_unsignaled_flush_complete", Rule: "semantics 29; ibv_post_send(3)", needs: writeOnly, run: unsignaledErrors},
	{Name: "destroyed_qp_completes_nothing_more", Rule: "semantics 34: destroy, then drain", needs: sendOnly, run: destroyIsFinal},
	{Name: "destroyed_peer_is_retry_exceeded", Rule: "IBTA 9.9.2.1.1", needs: sendOnly, run: destroyedPeer},
}

func errFlushes(c *Case) {
	a, b := c.link(func(o *opts) { o.stopB = verbs.QPSInit }) // B answers nothing: the sends stay outstanding
	r, rb := c.A.region(64), c.B.region(64)
	a.recv(RR{id: 11, sg: sg(r.all())}, RR{id: 12, sg: sg(r.all())}, RR{id: 13, sg: sg(r.all())})
	a.send(sendOf(1, r.all()), sendOf(2, r.all()).with(0), sendOf(3, r.all()))
	b.recv(RR{id: 21, sg: sg(rb.all())})
	a.to(verbs.QPSErr)
	a.flushed(a.scq, 1, 2, 3)
	a.flushed(a.rcq, 11, 12, 13)
	b.to(verbs.QPSErr) // from INIT
	b.flushed(b.rcq, 21)
	a.scq.none("each request completes once")
	a.rcq.none("each receive completes once")
}

func postInErr(c *Case) {
	a, _ := c.link()
	r := c.A.region(64)
	a.to(verbs.QPSErr)
	a.send(sendOf(1, r.all()), sendOf(2, r.all()).with(0))
	a.recv(RR{id: 11, sg: sg(r.all())}, RR{id: 12})
	a.flushed(a.scq, 1, 2)
	a.flushed(a.rcq, 11, 12)
}

func firstErrorIsCause(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(64).poison()
	a.recv(RR{id: 11, sg: sg(src.all())}, RR{id: 12, sg: sg(src.all())})
	bad := writeOf(2, dst, 0, src.all())
	bad.rkey ^= 0x5a5a5a
	a.send(bad, writeOf(3, dst, 0, src.all()), writeOf(4, dst, 0, src.all()))
	a.failed(a.scq.one(), 2, verbs.WCRemAccessErr)
	a.flushed(a.scq, 3, 4)
	a.flushed(a.rcq, 11, 12)
	c.bothDead(a, b)
	c.untouched(dst.bytes(), "the target of requests behind the failed one")
	a.scq.none("each request completes once")
}

func workBeforeError(c *Case) {
	a, _ := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(192).poison()
	bad := writeOf(3, dst, 128, src.all())
	bad.rkey ^= 0x5a5a5a
	a.send(writeOf(1, dst, 0, src.all()), writeOf(2, dst, 64, src.all()), bad)
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
	a.failed(a.scq.one(), 3, verbs.WCRemAccessErr)
	c.same(dst.bytes()[:64], src.bytes(), "the first WRITE before the error")
	c.same(dst.bytes()[64:128], src.bytes(), "the second WRITE before the error")
	c.untouched(dst.bytes()[128:], "the target of the refused WRITE")
}

func unsignaledErrors(c *Case) {
	a, _ := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	good := writeOf(1, dst, 0, src.all()).with(0)
	bad := writeOf(2, dst, 0, src.all()).with(0)
	bad.rkey ^= 0x5a5a5a
	after := writeOf(3, dst, 0, src.all()).with(0)
	a.send(good, bad, after)
	// The good one retires without a completion; the failed and the flushed do complete.
	a.failed(a.scq.one(), 2, verbs.WCRemAccessErr)
	a.flushed(a.scq, 3)
	a.scq.none("an unsignaled success completes silently")
}

func destroyIsFinal(c *Case) {
	a, _ := c.link(func(o *opts) { o.stopB = verbs.QPSInit })
	r := c.A.region(64)
	a.recv(RR{id: 11, sg: sg(r.all())})
	a.send(sendOf(1, r.all()))
	c.until("destroy_qp with work outstanding", func() bool { return a.Close() == nil })
	// Completions from before the destroy may still be polled, no others.
	n := 0
	for _, cq := range []*CQ{a.scq, a.rcq} {
		for cq.poll() > 0 {
		}
		for _, w := range cq.got {
			if w.WRID != 1 && w.WRID != 11 || w.Status == verbs.WCSuccess {
				c.failf("after destroy_qp %s was polled", show(w))
			}
			n++
		}
		cq.got = nil
	}
	if n > 2 {
		c.failf("two requests were posted, %d completed", n)
	}
	a.scq.none("nothing completes after destroy_qp")
	a.rcq.none("nothing completes after destroy_qp")
	_, err := a.trySend(sendOf(2, r.all()))
	c.refused(err, "post_send to a destroyed queue pair")
	_, err = a.tryRecv(RR{id: 12})
	c.refused(err, "post_recv to a destroyed queue pair")
}

func destroyedPeer(c *Case) {
	a, b := c.link(func(o *opts) { o.timeout, o.retry = fastTimeout, 1 })
	r := c.A.region(64)
	c.until("destroy_qp", func() bool { return b.Close() == nil })
	a.send(sendOf(1, r.all()), sendOf(2, r.all()))
	a.failed(a.scq.one(), 1, verbs.WCRetryExcErr)
	a.flushed(a.scq, 2)
	a.untilState(verbs.QPSErr)
}
