package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var (
	overrunOnly = needs{ops: sendOnly.ops, overrun: true}
	resizeOnly  = needs{ops: writeOnly.ops, resize: true}
)

var cqLifeCases = []Spec{
	{Name: "cq_overrun_spares_other_queues", Rule: "semantics 29", needs: overrunOnly, run: overrunSpares},
	{Name: "cq_overrun_is_final", Rule: "semantics 29; ibv_resize_cq(3)", needs: overrunOnly, run: overrunFinal},
	{Name: "cq_overrun_while_armed_wakes", Rule: "semantics 29, 26", needs: overrunOnly, run: overrunArmed},
	{Name: "cq_overrun_by_flushed_work_counts", Rule: "semantics 29: unsignaled work completes on a flush", needs: overrunOnly, run: overrunFlush},
	{Name: "cq_overrun_can_be_closed", Rule: "semantics 29, 27", needs: overrunOnly, run: overrunClose},
	{Name: "cq_full_to_the_brim_is_no_overrun", Rule: "semantics 29; ibv_create_cq(3)", needs: overrunOnly, run: brim},
	{Name: "cq_resize_while_armed_keeps_the_event", Rule: "ibv_resize_cq(3); semantics 26", needs: resizeOnly, run: resizeArmed},
	{Name: "cq_resize_keeps_order_across_many", Rule: "ibv_resize_cq(3)", needs: resizeOnly, run: resizeMany},
	{Name: "cq_resize_out_of_range_is_refused", Rule: "ibv_resize_cq(3): EINVAL", needs: resizeOnly, run: resizeRange},
	{Name: "cq_resized_takes_as_many_as_it_says", Rule: "ibv_resize_cq(3); semantics 29", needs: resizeOnly.with(func(n *needs) { n.overrun = true }), run: resizeBrim},
}

// overrunAt overruns a receive queue at one end: its queue pair b gets more messages from a than
// the queue holds.
func (c *Case) overrunAt(e *End, mod ...func(*opts)) (small *CQ, b, a *QP) {
	c.t.Helper()
	o := c.defaults()
	for _, m := range mod {
		m(&o)
	}
	var ch verbs.CompChannel
	if o.channel {
		ch = e.channel()
	}
	o.channel = false
	small = e.cq(2, ch)
	n := small.Capacity() + 2
	o.recvs, o.rcq = n, small
	oa := c.defaults()
	oa.sends, oa.timeout, oa.retry = n, c.soonTimeout(), 1 // the dead end does not answer
	a, b = c.A.newQP(oa, psnA), e.newQP(o, psnB)
	c.connect(a, b)
	src, dst := c.A.region(8), e.region(8)
	for i := range n {
		b.recv(RR{id: uint64(i), sg: sg(dst.all())})
	}
	if ch != nil {
		small.arm(false)
	}
	for i := range n {
		a.send(sendOf(uint64(i), src.all()))
	}
	return small, b, a
}

func overrunSpares(c *Case) {
	a, b := c.link()
	small, dead, _ := c.overrunAt(c.B)
	c.B.untilEvent(small.CQ, verbs.EventCQErr)
	dead.untilState(verbs.QPSErr)
	src, dst := c.A.region(8).fill(1), c.B.region(8)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 8)
}

func overrunFinal(c *Case) {
	small, dead, _ := c.overrunAt(c.B)
	c.B.untilEvent(small.CQ, verbs.EventCQErr)
	dead.untilState(verbs.QPSErr)
	if err := small.Resize(200); err == nil { // it may be accepted; the queue stays dead
		c.settle()
	}
	buf := c.B.wcBuffer(1)
	c.until("polling a dead queue must end in an errno", func() bool {
		_, err := verbs.Poll(small.CQ, buf)
		return err != nil
	})
	_, err := verbs.Poll(small.CQ, buf)
	c.refused(err, "a second poll of a dead queue")
	if n := c.B.count(small.CQ, verbs.EventCQErr); n != 1 {
		c.failf("CQ_ERR came %d times", n)
	}
}

func overrunArmed(c *Case) {
	small, _, _ := c.overrunAt(c.B, func(o *opts) { o.channel = true })
	small.untilEvent("the queue was armed before its first completion")
	c.B.untilEvent(small.CQ, verbs.EventCQErr)
}

// The requests are unsignaled. Flushed, they complete all the same, and there is no room for
// them.
func overrunFlush(c *Case) {
	small := c.A.cq(2, nil)
	n := small.Capacity() + 2
	nobody := c.B.newQP(c.defaults(), psnB) // stays in RESET
	o := c.defaults()
	o.scq, o.sends, o.timeout = small, n, 0
	q := c.A.newQP(o, psnA)
	q.toInit()
	q.toRTR(nobody.info())
	q.toRTS()
	var list []SR
	for i := range n {
		list = append(list, sendOf(uint64(i)).with(0))
	}
	q.send(list...)
	q.to(verbs.QPSErr)
	c.A.untilEvent(small.CQ, verbs.EventCQErr)
}

func overrunClose(c *Case) {
	before := c.B.ctx.Objects().CQ
	small, dead, _ := c.overrunAt(c.B)
	c.B.untilEvent(small.CQ, verbs.EventCQErr)
	dead.untilState(verbs.QPSErr)
	c.refused(small.Close(), "closing an overrun queue with a queue pair", verbs.ErrBusy)
	c.must(dead.Close(), "destroy_qp of a queue pair whose queue was overrun")
	c.must(small.Close(), "closing an overrun queue")
	if n := c.B.ctx.Objects().CQ; n > before+1 { // the sender side of b
		c.failf("%d completion queues before, %d now", before, n)
	}
}

func brim(c *Case) {
	small := c.B.cq(4, nil)
	n := small.Capacity()
	o := c.defaults()
	o.recvs, o.rcq = n, small
	oa := c.defaults()
	oa.sends = n
	a, b := c.A.newQP(oa, psnA), c.B.newQP(o, psnB)
	c.connect(a, b)
	src, dst := c.A.region(8), c.B.region(8)
	for range 3 {
		for i := range n {
			b.recv(RR{id: uint64(i), sg: sg(dst.all())})
			a.send(sendOf(uint64(i), src.all()))
		}
		a.scq.take(n)
		c.settle()
		for i, w := range small.take(n) {
			b.received(w, uint64(i), verbs.WCRecv, 8)
		}
	}
	if k := c.B.count(small.CQ, verbs.EventCQErr); k != 0 {
		c.failf("a queue of %d entries was overrun by %d completions", n, n)
	}
}

func resizeArmed(c *Case) {
	a, _ := c.link(func(o *opts) { o.channel = true; o.cqe = 16 })
	src, dst := c.A.region(8), c.B.region(8)
	a.scq.arm(false)
	err := a.scq.Resize(100)
	c.unsupported(err)
	c.must(err, "resize_cq")
	a.send(writeOf(1, dst, 0, src.all()))
	a.scq.untilEvent("the queue was armed before it was resized")
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	a.send(writeOf(2, dst, 0, src.all()))
	a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
	a.scq.noEvent("resizing does not arm")
}

func resizeMany(c *Case) {
	a, _ := c.link(func(o *opts) { o.cqe = 16 })
	src, dst := c.A.region(8), c.B.region(8)
	next, taken := uint64(0), uint64(0)
	for _, size := range []int{40, 17, 300, 20, 64} {
		for range 7 {
			a.send(writeOf(next, dst, 0, src.all()))
			next++
		}
		c.settle()
		err := a.scq.Resize(size)
		c.unsupported(err)
		c.must(err, "resize_cq to %d entries", size)
		if a.scq.Capacity() < size {
			c.failf("a queue resized to %d entries has %d", size, a.scq.Capacity())
		}
		for taken+2 < next {
			a.sent(a.scq.one(), taken, verbs.WCRDMAWrite)
			taken++
		}
	}
	for taken < next {
		a.sent(a.scq.one(), taken, verbs.WCRDMAWrite)
		taken++
	}
	a.scq.none("each request completes once")
}

func resizeRange(c *Case) {
	d, err := c.A.ctx.QueryDevice()
	c.must(err, "query_device")
	cq := c.A.cq(16, nil)
	was := cq.Capacity()
	for _, n := range []int{0, -1, d.MaxCQE + 1} {
		c.refused(cq.Resize(n), "resize_cq to impossible entries")
	}
	if cq.Capacity() != was {
		c.failf("a resize_cq that was refused changed the capacity from %d to %d", was, cq.Capacity())
	}
}

func resizeBrim(c *Case) {
	cq := c.A.cq(2, nil)
	err := cq.Resize(20)
	c.unsupported(err)
	c.must(err, "resize_cq")
	n := cq.Capacity()
	o := c.defaults()
	o.scq, o.sends = cq, n
	a, b := c.A.newQP(o, psnA), c.B.newQP(c.defaults(), psnB)
	c.connect(a, b)
	src, dst := c.A.region(8), c.B.region(8)
	for i := range n {
		a.send(writeOf(uint64(i), dst, 0, src.all()))
	}
	c.settle()
	for i := range n {
		a.sent(cq.one(), uint64(i), verbs.WCRDMAWrite)
	}
	if k := c.A.count(cq.CQ, verbs.EventCQErr); k != 0 {
		c.failf("a queue resized to %d entries was overrun by as many", n)
	}
}
