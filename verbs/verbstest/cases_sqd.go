package verbstest

import "github.com/verbena-rdma/verbena/verbs"

func sqdHolds(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(64).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.to(verbs.QPSSQD)
	a.send(sendOf(1, src.all()))
	b.rcq.none("a send posted in SQD is not sent")
	a.scq.none("a send posted in SQD does not complete")
	c.untouched(dst.bytes(), "the receive buffer while the sender is in SQD")
	a.to(verbs.QPSRTS)
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
	c.same(dst.bytes(), src.bytes(), "the send after SQD")
}

func sqdDrained(c *Case) {
	a, _ := c.link()
	c.must(a.Modify(&verbs.QPAttr{State: verbs.QPSSQD, EnSQDAsyncNotify: true}, verbs.QPMState|verbs.QPMEnSQDAsyncNotify), "RTS to SQD with a notification")
	c.A.untilEvent(a.QP, verbs.EventSQDrained)
	if at, err := a.Query(); err != nil || at.SQDraining {
		c.failf("after SQ_DRAINED the queue pair still drains (%v)", err)
	}
}

func commEst(c *Case) {
	a, b := c.link(func(o *opts) { o.stopB = verbs.QPSRTR })
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()))
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
	c.B.untilEvent(b.QP, verbs.EventCommEst)
}

func resetForgets(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(64).poison()
	b.recv(RR{id: 7, sg: sg(dst.all())}, RR{id: 8, sg: sg(dst.all())})
	b.to(verbs.QPSReset)
	b.rcq.none("RESET forgets posted receives without a completion")
	a.to(verbs.QPSReset)
	c.connect(a, b)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
	c.same(dst.bytes(), src.bytes(), "the send after RESET and connecting again")
	b.rcq.none("the receives posted before RESET are gone")
}
