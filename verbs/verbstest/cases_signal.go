package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var signalCases = []Spec{
	{Name: "rc_write_unsignaled_retired_by_later", Rule: "semantics 30, 2", needs: writeOnly, run: retiredByLater},
	{Name: "unsignaled_success_completes_silently", Rule: "ibv_post_send(3): IBV_SEND_SIGNALED", needs: everyOp, run: unsignaledSilent},
	{Name: "sq_sig_all_completes_every_request", Rule: "ibv_create_qp(3): sq_sig_all", needs: writeOnly, run: sigAll},
	{Name: "receives_always_complete", Rule: "ibv_post_recv(3)", needs: sendOnly, run: receivesComplete},
}

func retiredByLater(c *Case) {
	a, _ := c.link(func(o *opts) { o.sends = 8 })
	src, dst := c.A.region(8).fill(1), c.B.region(64).poison()
	for round := range 3 { // the slots of the unsignaled ones are freed with the last
		var list []SR
		for i := range 8 {
			r := writeOf(uint64(100*round+i), dst, 8*i, src.all())
			if i < 7 {
				r.flags = 0
			}
			list = append(list, r)
		}
		a.send(list...)
		a.sent(a.scq.one(), uint64(100*round+7), verbs.WCRDMAWrite)
	}
	a.scq.none("unsignaled requests that succeed do not complete")
	for i := range 8 {
		c.same(dst.bytes()[8*i:8*i+8], src.bytes(), "an unsignaled WRITE that a later completion retired")
	}
}

func unsignaledSilent(c *Case) {
	a, b := c.link()
	buf, dst := c.A.region(64), c.B.region(64)
	b.recv(RR{id: 1, sg: sg(dst.all())}, RR{id: 2, sg: sg(dst.all())}, RR{id: 3})
	list := []SR{
		sendOf(1, buf.all()), sendImmOf(2, 1, buf.all()), writeOf(3, dst, 0, buf.all()), writeImmOf(4, 1, dst, 0, buf.all()),
		readOf(5, dst, 0, buf.all()), addOf(6, dst, 0, 1, buf.sge(0, 8)), casOf(7, dst, 0, 1, 2, buf.sge(0, 8)),
	}
	for i := range list {
		list[i].flags = 0
	}
	a.send(append(list, writeOf(8, dst, 0, buf.all()))...)
	a.sent(a.scq.one(), 8, verbs.WCRDMAWrite)
	a.scq.none("unsignaled requests of every opcode complete silently")
	if n := len(b.rcq.take(3)); n != 3 {
		c.failf("%d of 3 receives completed", n)
	}
}

func sigAll(c *Case) {
	a, _ := c.link(func(o *opts) { o.sigAll = true })
	src, dst := c.A.region(8), c.B.region(8)
	for i := range 5 {
		a.send(writeOf(uint64(i), dst, 0, src.all()).with(0))
	}
	for i := range 5 {
		a.sent(a.scq.one(), uint64(i), verbs.WCRDMAWrite)
	}
}

func receivesComplete(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(8), c.B.region(8)
	b.recv(RR{id: 1, sg: sg(dst.all())}, RR{id: 2, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()).with(0), sendOf(2, src.all()).with(verbs.SendSolicited))
	b.received(b.rcq.one(), 1, verbs.WCRecv, 8)
	b.received(b.rcq.one(), 2, verbs.WCRecv, 8)
	a.scq.none("SOLICITED is not SIGNALED")
}
