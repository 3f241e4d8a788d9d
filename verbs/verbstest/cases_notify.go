package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var armCases = []Spec{
	{Name: "arming_is_one_shot", Rule: "semantics 26; ibv_req_notify_cq(3)", needs: sendOnly, run: oneShot},
	{Name: "unarmed_queue_raises_no_event", Rule: "semantics 26", needs: sendOnly, run: unarmed},
	{Name: "arm_then_poll_loses_nothing", Rule: "semantics 26, 43; invariant 6", needs: sendOnly, run: armThenPoll},
	{Name: "event_with_an_empty_queue_is_normal", Rule: "semantics 26, 7", needs: sendOnly, run: emptyEvent},
	{Name: "solicited_only_ignores_the_unsolicited", Rule: "semantics 28", needs: sendOnly, run: solicitedOnly},
	{Name: "solicited_only_hears_errors", Rule: "semantics 28; IBTA 11.4.2.2", needs: sendOnly, run: solicitedError},
	{Name: "solicited_write_with_imm_raises_the_event", Rule: "IBTA 9.2.3: SE bit", needs: writeImm, run: solicitedImm},
	{Name: "arming_for_all_outweighs_solicited_only", Rule: "ibv_req_notify_cq(3); IBTA 11.4.2.2", needs: sendOnly, run: armForAll},
	{Name: "one_channel_names_the_queue_of_each_event", Rule: "ibv_get_cq_event(3)", needs: sendOnly, run: sharedChannel},
	{Name: "unacknowledged_event_keeps_the_queue", Rule: "semantics 27", needs: sendOnly, run: unacked},
	{Name: "channel_wakes_a_sleeper", Rule: "contract: Source; ibv_get_cq_event(3)", needs: sendOnly, run: wakesSleeper},
	{Name: "channel_descriptor_is_readable_until_its_events_are_taken", Rule: "contract: Source; ibv_get_cq_event(3)", needs: sendOnly, run: readable},
}

// armed makes a link whose queues have channels, with receives posted at B.
func (c *Case) armed(recvs int) (a, b *QP, src *Region) {
	c.t.Helper()
	a, b = c.link(func(o *opts) { o.channel = true; o.recvs = max(recvs, 1) })
	src = c.A.region(8).fill(1)
	dst := c.B.region(8)
	for i := range recvs {
		b.recv(RR{id: uint64(i), sg: sg(dst.all())})
	}
	return a, b, src
}

func oneShot(c *Case) {
	a, b, src := c.armed(4)
	b.rcq.arm(false)
	a.send(sendOf(1, src.all()), sendOf(2, src.all()))
	b.rcq.untilEvent("the queue was armed")
	b.rcq.take(2)
	b.rcq.noEvent("arming asks for one event only")
	a.send(sendOf(3, src.all()))
	b.rcq.take(1)
	b.rcq.noEvent("the queue was not armed again")
	b.rcq.arm(false)
	a.send(sendOf(4, src.all()))
	b.rcq.untilEvent("the queue was armed again")
}

func unarmed(c *Case) {
	a, b, src := c.armed(1)
	a.send(sendOf(1, src.all()))
	b.rcq.take(1)
	b.rcq.noEvent("a queue that was never armed raises no event")
	a.scq.noEvent("a queue that was never armed raises no event")
}

// The usual loop of a program: arm, poll to empty, and only then wait. Each message is sent
// between a different pair of its steps.
func armThenPoll(c *Case) {
	const rounds = 30
	a, b, src := c.armed(rounds)
	for i := range rounds {
		send := func(when int) {
			if i%3 == when {
				a.send(sendOf(uint64(i), src.all()))
			}
		}
		send(0)
		for b.rcq.event() { // of an earlier round, empty by now
		}
		b.rcq.arm(false)
		send(1)
		if b.rcq.poll() == 0 {
			send(2)
			if i%3 == 2 || len(b.rcq.got) == 0 {
				b.rcq.untilEvent("the queue was armed, then found empty, then got a completion")
			}
		}
		b.received(b.rcq.one(), uint64(i), verbs.WCRecv, 8)
		if i%3 == 2 && len(b.rcq.got) != 0 {
			c.failf("one message, %d more completions", len(b.rcq.got))
		}
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
	}
}

func emptyEvent(c *Case) {
	a, b, src := c.armed(2)
	b.rcq.arm(false)
	a.send(sendOf(1, src.all()))
	b.received(b.rcq.one(), 0, verbs.WCRecv, 8) // polled before the event is taken
	b.rcq.untilEvent("the queue was armed before the completion came")
	if n := b.rcq.poll(); n != 0 {
		c.failf("the queue had been emptied, %d completions were polled", n)
	}
	b.rcq.arm(false)
	a.send(sendOf(2, src.all()))
	b.rcq.untilEvent("an empty event must not stop the next one")
	b.received(b.rcq.one(), 1, verbs.WCRecv, 8)
}

func solicitedOnly(c *Case) {
	a, b, src := c.armed(3)
	b.rcq.arm(true)
	a.scq.arm(true)
	a.send(sendOf(1, src.all()))
	b.rcq.take(1)
	b.rcq.noEvent("an unsolicited message")
	a.send(sendOf(2, src.all()).with(signaled | verbs.SendSolicited))
	b.rcq.untilEvent("a solicited message")
	b.rcq.take(1)
	a.scq.take(2)
	a.scq.noEvent("a send that succeeds is never solicited")
}

func solicitedError(c *Case) {
	a, b, src := c.armed(1)
	a.scq.arm(true)
	b.rcq.arm(true)
	bad := src.all()
	bad.LKey ^= 0x777
	a.send(sendOf(1, bad))
	a.failed(a.scq.one(), 1, verbs.WCLocProtErr)
	a.scq.untilEvent("a failed request counts as solicited")
	b.to(verbs.QPSErr)
	b.flushed(b.rcq, 0)
	b.rcq.untilEvent("a flushed receive counts as solicited")
}

func solicitedImm(c *Case) {
	a, b, src := c.armed(2)
	dst := c.B.region(8)
	b.rcq.arm(true)
	a.send(writeImmOf(1, 1, dst, 0, src.all()))
	b.rcq.take(1)
	b.rcq.noEvent("an unsolicited WRITE with immediate")
	a.send(writeImmOf(2, 1, dst, 0, src.all()).with(signaled | verbs.SendSolicited))
	b.rcq.untilEvent("a solicited WRITE with immediate")
	b.rcq.take(1)
}

func armForAll(c *Case) {
	a, b, src := c.armed(2)
	b.rcq.arm(false)
	b.rcq.arm(true) // must not weaken the earlier request
	a.send(sendOf(1, src.all()))
	b.rcq.untilEvent("the queue was armed for every completion, then for solicited ones")
	b.rcq.take(1)
	b.rcq.arm(true)
	b.rcq.arm(false)
	a.send(sendOf(2, src.all()))
	b.rcq.untilEvent("the queue was armed for solicited completions, then for all")
	b.rcq.take(1)
}

func sharedChannel(c *Case) {
	ch := c.B.channel()
	q1, q2 := c.B.cq(8, ch), c.B.cq(8, ch)
	a, b := c.link(func(o *opts) {})
	o := c.defaults()
	o.scq, o.rcq = q1, q2
	a2, b2 := c.A.newQP(c.defaults(), 100), c.B.newQP(o, 200)
	c.connect(a2, b2)
	src, dst := c.A.region(8), c.B.region(8)
	b2.recv(RR{id: 9, sg: sg(dst.all())})
	a2.recv(RR{id: 8, sg: sg(src.all())})
	q1.arm(false)
	q2.arm(false)
	a2.send(sendOf(1, src.all()))
	b2.send(sendOf(2, dst.all()))
	seen := map[verbs.CQ]int{}
	c.until("an event of each queue", func() bool {
		for {
			cq, ok, err := ch.GetEvent()
			c.must(err, "get_cq_event")
			if !ok {
				break
			}
			seen[cq]++
			cq.AckEvents(1)
		}
		return len(seen) == 2
	})
	if seen[q1.CQ] != 1 || seen[q2.CQ] != 1 {
		c.failf("the send queue raised %d events, the receive queue %d", seen[q1.CQ], seen[q2.CQ])
	}
	b2.sent(q1.one(), 2, verbs.WCSend)
	b2.received(q2.one(), 9, verbs.WCRecv, 8)
	_, _ = a, b
}

func unacked(c *Case) {
	a, b, src := c.armed(2)
	ch := c.B.channel()
	cq := c.B.cq(4, ch)
	b.rcq.arm(false)
	a.send(sendOf(1, src.all()))
	var got verbs.CQ
	c.until("an event", func() bool {
		q, ok, err := b.rcq.ch.GetEvent()
		c.must(err, "get_cq_event")
		got = q
		return ok
	})
	b.rcq.take(1)
	c.until("destroy_qp", func() bool { return b.Close() == nil })
	c.refused(got.Close(), "closing a queue with an unacknowledged event", verbs.ErrBusy)
	got.AckEvents(1)
	c.must(got.Close(), "closing the queue after the acknowledgement")
	c.must(cq.Close(), "closing a queue without events")
}
