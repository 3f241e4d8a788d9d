package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// fastRNR is the RNR timer of 10 µs, slowRNR that of 1.28 ms.
const (
	fastRNR = 1
	slowRNR = 14
)

var rnrCases = []Spec{
	{Name: "rnr_retry_exceeded", Rule: "IBTA 9.7.5.2.8, 9.9.2.1.1; semantics 19", needs: sendOnly, run: rnrExceeded},
	{Name: "rnr_retry_zero_fails_at_once", Rule: "IBTA 9.7.5.2.8", needs: sendOnly, run: rnrZero},
	{Name: "rnr_recovers_when_a_receive_is_posted", Rule: "IBTA 9.7.5.2.8", needs: sendOnly, run: rnrRecovers},
	{Name: "rnr_retry_7_never_gives_up", Rule: "semantics 19; ibv_modify_qp(3)", needs: sendOnly, run: rnrForEver},
	{Name: "rnr_of_write_with_imm_recovers", Rule: "IBTA 9.7.5.2.8; semantics 17", needs: writeImm, run: rnrImm},
	{Name: "rnr_waits_at_least_the_timer_asked_for", Rule: "IBTA 9.7.5.2.8, table 45", needs: needs{ops: sendOnly.ops, clock: true}, run: rnrTimer},
	{Name: "rnr_resends_what_was_behind_it", Rule: "IBTA 9.7.5.2.8: go back", needs: sendWrite, run: rnrOrder},
}

func rnrExceeded(c *Case) {
	a, b := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = 2, fastRNR })
	src := c.A.region(64)
	a.recv(RR{id: 21})
	a.send(sendOf(1, src.all()), sendOf(2, src.all()))
	a.failed(a.scq.one(), 1, verbs.WCRNRRetryExcErr)
	a.flushed(a.scq, 2)
	a.flushed(a.rcq, 21)
	a.untilState(verbs.QPSErr)
	// A receiver that was not ready stays in RTS.
	if s := b.state(); s != verbs.QPSRTS {
		c.failf("the receiver that was not ready is in %v", s)
	}
}

func rnrZero(c *Case) {
	a, _ := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = 0, slowRNR })
	a.send(sendOf(1, c.A.region(64).all()))
	a.failed(a.scq.one(), 1, verbs.WCRNRRetryExcErr)
}

func rnrRecovers(c *Case) {
	a, b := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = verbs.RNRRetryInfinite, fastRNR })
	src, dst := c.A.region(3000).fill(1), c.B.region(3000).poison()
	a.send(sendOf(1, src.all()))
	a.scq.none("nobody is ready to receive")
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 3000)
	c.same(dst.bytes(), src.bytes(), "the message after RNR")
	b.rcq.none("one message, one receive")
}

func rnrForEver(c *Case) {
	a, b := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = verbs.RNRRetryInfinite, fastRNR })
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	a.send(sendOf(1, src.all()))
	for range 4 { // hundreds of retries of 10 µs
		a.scq.none("rnr_retry 7 never gives up")
	}
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
}

func rnrImm(c *Case) {
	a, b := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = verbs.RNRRetryInfinite, fastRNR })
	src, dst := c.A.region(5000).fill(1), c.B.region(5000).poison()
	a.send(writeImmOf(1, 5, dst, 0, src.all()))
	a.scq.none("nobody is ready to receive the immediate data")
	b.recv(RR{id: 9})
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	b.received(b.rcq.one(), 9, verbs.WCRecvRDMAWithImm, 5000)
	c.same(dst.bytes(), src.bytes(), "the WRITE with immediate after RNR")
}

func rnrTimer(c *Case) {
	const retries, code = 3, 20
	a, _ := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = retries, code })
	began := c.now()
	a.send(sendOf(1, c.A.region(64).all()))
	a.failed(a.scq.one(), 1, verbs.WCRNRRetryExcErr)
	if took, least := c.now()-began, retries*verbs.RNRTimeout(code); took < least {
		c.failf("%d retries with a timer of %v took %v, less than %v", retries, verbs.RNRTimeout(code), took, least)
	}
}

func rnrOrder(c *Case) {
	a, b := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = verbs.RNRRetryInfinite, fastRNR })
	src, dst := c.A.region(256).fill(1), c.B.region(512).poison()
	a.send(writeOf(1, dst, 0, src.sge(0, 64)), sendOf(2, src.sge(64, 64)), writeOf(3, dst, 128, src.sge(128, 64)), sendOf(4, src.sge(192, 64)))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	a.scq.none("the SEND waits, and what is behind it")
	c.untouched(dst.bytes()[128:192], "the target of a WRITE behind a SEND that waits")
	b.recv(RR{id: 8, sg: sg(dst.sge(256, 64))}, RR{id: 9, sg: sg(dst.sge(320, 64))})
	a.sent(a.scq.one(), 2, verbs.WCSend)
	a.sent(a.scq.one(), 3, verbs.WCRDMAWrite)
	a.sent(a.scq.one(), 4, verbs.WCSend)
	b.received(b.rcq.one(), 8, verbs.WCRecv, 64)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
	c.same(dst.bytes()[:64], src.bytes()[:64], "the WRITE before")
	c.same(dst.bytes()[256:320], src.bytes()[64:128], "the SEND that waited")
	c.same(dst.bytes()[128:192], src.bytes()[128:192], "the WRITE behind")
	c.same(dst.bytes()[320:384], src.bytes()[192:], "the SEND behind")
}
