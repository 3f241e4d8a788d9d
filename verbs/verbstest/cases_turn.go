package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// spinRounds is the number of further polls that a batch requests here.
const spinRounds = 64

func turnGroups(c *Case) {
	a1, b1 := c.link()
	a2, b2 := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	b1.recv(RR{id: 1, sg: sg(dst.all())})
	b2.recv(RR{id: 2, sg: sg(dst.all())}, RR{id: 3, sg: sg(dst.all())})
	bad := sendOf(11, src.all()) // more elements than granted: all devices check
	for range a1.cap.MaxSendSGE {
		bad.sg = append(bad.sg, src.sge(0, 1))
	}
	turn := verbs.IOBatch{Sends: []verbs.SendGroup{
		{QP: a1.QP, Head: c.A.sendList([]SR{sendOf(10, src.all()), bad, sendOf(12, src.all())}), Count: 3},
		{QP: a2.QP, Head: c.A.sendList([]SR{sendOf(20, src.all()), sendOf(21, src.all())}), Count: 2},
	}}
	c.must(c.A.ctx.Execute(&turn), "a turn with a bad group")
	if g := turn.Sends[0]; g.Accepted != 1 || g.Errno == 0 {
		c.failf("the group that is bad at 1 accepted %d with errno %v", g.Accepted, g.Errno)
	}
	if g := turn.Sends[1]; g.Accepted != 2 || g.Errno != 0 {
		c.failf("the good group beside it accepted %d with errno %v", g.Accepted, g.Errno)
	}
	a1.sent(a1.scq.one(), 10, verbs.WCSend)
	a2.sent(a2.scq.one(), 20, verbs.WCSend)
	a2.sent(a2.scq.one(), 21, verbs.WCSend)
	b1.received(b1.rcq.one(), 1, verbs.WCRecv, 64)
	b2.received(b2.rcq.one(), 2, verbs.WCRecv, 64)
	b2.received(b2.rcq.one(), 3, verbs.WCRecv, 64)
	a1.scq.none("what stands behind a bad request was never posted")
}

// A batch that arms and polls finds a completion by the poll or by an event: the case checks both
// together, whatever was in the queue before.
func turnOrder(c *Case) {
	a, b := c.link(func(o *opts) { o.channel = true; o.sends, o.recvs = 64, 64 })
	src, dst := c.A.region(8).fill(1), c.B.region(8)
	const rounds = 24
	for i := range rounds {
		b.recv(RR{id: uint64(i), sg: sg(dst.all())})
	}
	wc := c.B.wcBuffer(4)
	for i := range rounds {
		a.send(sendOf(uint64(i), src.all()))
		got := 0
		c.until("the completion by a poll that follows arming, or by an event", func() bool {
			t := verbs.IOBatch{Arms: []verbs.ArmGroup{{CQ: b.rcq.CQ}}, Polls: []verbs.PollGroup{{CQ: b.rcq.CQ, WC: wc}}}
			t.Spin = i % 2 * spinRounds // does not affect the completions found
			c.must(c.B.ctx.Execute(&t), "arming and polling")
			if t.Arms[0].Errno != 0 || t.Polls[0].Errno != 0 {
				c.failf("arming answered %v, polling %v", t.Arms[0].Errno, t.Polls[0].Errno)
			}
			if n := t.Polls[0].N; n > 0 {
				b.received(wc[0], uint64(i), verbs.WCRecv, 8)
				got += n
				return true
			}
			// The event must come, because the queue was empty when the program went to sleep.
			b.rcq.untilEvent("the queue was armed and then empty")
			return false
		})
		if got != 1 {
			c.failf("one message was sent, %d completions were polled", got)
		}
		b.rcq.event()
	}
}

func emptyGroups(c *Case) {
	a, _ := c.link()
	turn := verbs.IOBatch{
		Sends: []verbs.SendGroup{{QP: a.QP}}, Recvs: []verbs.RecvGroup{{QP: a.QP}},
		Polls: []verbs.PollGroup{{CQ: a.scq.CQ}},
	}
	c.must(c.A.ctx.Execute(&turn), "a turn of empty groups")
	if g := turn.Sends[0]; g.Accepted != 0 || g.Errno != 0 {
		c.failf("an empty send group accepted %d with errno %v", g.Accepted, g.Errno)
	}
	if g := turn.Recvs[0]; g.Accepted != 0 || g.Errno != 0 {
		c.failf("an empty receive group accepted %d with errno %v", g.Accepted, g.Errno)
	}
	if g := turn.Polls[0]; g.N != 0 || g.Errno != 0 {
		c.failf("a poll without room took %d with errno %v", g.N, g.Errno)
	}
	c.must(c.A.ctx.Execute(&verbs.IOBatch{}), "an empty turn")
	turn = verbs.IOBatch{Spin: spinRounds, Polls: []verbs.PollGroup{{CQ: a.scq.CQ}, {CQ: a.scq.CQ, WC: c.A.wcBuffer(1)}}}
	c.must(c.A.ctx.Execute(&turn), "a turn that polls again and again")
	for _, g := range turn.Polls {
		if g.N != 0 || g.Errno != 0 {
			c.failf("polling an empty queue %d times took %d completions, errno %v", spinRounds+1, g.N, g.Errno)
		}
	}
}
