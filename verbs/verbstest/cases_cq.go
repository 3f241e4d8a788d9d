package verbstest

import (
	"github.com/verbena-rdma/verbena/verbs"
)

var cqCases = []Spec{
	{Name: "poll_takes_at_most_its_room_in_order", Rule: "ibv_poll_cq(3)", needs: writeOnly, run: pollBounded},
	{Name: "one_queue_serves_sends_and_receives", Rule: "ibv_create_qp(3)", needs: sendOnly, run: oneQueue},
	{Name: "one_queue_serves_many_queue_pairs", Rule: "ibv_poll_cq(3): qp_num", needs: sendOnly, run: manyQPs},
	{Name: "cq_overrun_kills_the_queue_and_its_queue_pairs", Rule: "semantics 29", needs: needs{ops: sendOnly.ops, overrun: true}, run: overrun},
	{Name: "cq_resize_keeps_what_is_queued", Rule: "ibv_resize_cq(3)", needs: writeOnly, run: resize},
	{Name: "user_data_comes_back", Rule: "ibv_create_cq(3) cq_context, ibv_create_qp(3) qp_context", run: userData},
}

func pollBounded(c *Case) {
	const n = 12
	a, _ := c.link()
	src, dst := c.A.region(8), c.B.region(8)
	var list []SR
	for i := range n {
		list = append(list, writeOf(uint64(i), dst, 0, src.all()))
	}
	a.send(list...)
	next := uint64(0)
	for _, room := range []int{1, 2, 3, 1, 5} {
		buf := c.A.wcBuffer(room + 1)
		const guard = 0x5ca1ab1e
		buf[room].WRID = guard
		got := 0
		c.until("the completions", func() bool {
			k, err := verbs.Poll(a.scq.CQ, buf[got:room])
			c.must(err, "poll_cq")
			if k > room-got {
				c.failf("a poll with room for %d took %d", room-got, k)
			}
			for _, w := range buf[got : got+k] {
				a.sent(w, next, verbs.WCRDMAWrite)
				next++
			}
			got += k
			return got == room
		})
		if buf[room].WRID != guard {
			c.failf("a poll with room for %d wrote behind it", room)
		}
	}
	a.scq.none("every request completed once")
}

func oneQueue(c *Case) {
	a, b := c.link(func(o *opts) { o.oneCQ = true })
	ra, rb := c.A.region(8).fill(1), c.B.region(8).fill(2)
	a.recv(RR{id: 101, sg: sg(c.A.region(8).all())})
	b.recv(RR{id: 102, sg: sg(c.B.region(8).all())})
	a.send(sendOf(1, ra.all()))
	b.send(sendOf(2, rb.all()))
	for _, q := range []*QP{a, b} {
		for _, w := range q.scq.take(2) {
			switch {
			case w.WRID > 100:
				q.received(w, w.WRID, verbs.WCRecv, 8)
			default:
				q.sent(w, w.WRID, verbs.WCSend)
			}
		}
		q.scq.none("two requests, two completions")
	}
}

func manyQPs(c *Case) {
	const qps = 5
	cq := c.B.cq(qps*4, nil)
	want := map[uint32]uint64{}
	src, dst := c.A.region(8), c.B.region(8)
	var as []*QP
	for i := range qps {
		o := c.defaults()
		o.scq, o.rcq = cq, cq
		a, b := c.A.newQP(c.defaults(), 10), c.B.newQP(o, 20)
		c.connect(a, b)
		b.recv(RR{id: uint64(i), sg: sg(dst.all())})
		want[b.Num()] = uint64(i)
		as = append(as, a)
	}
	for i := range as {
		as[qps-1-i].send(sendOf(1, src.all()))
	}
	for _, w := range cq.take(qps) {
		id, ok := want[w.QPNum]
		if !ok || w.WRID != id || w.Status != verbs.WCSuccess {
			c.failf("QP %#x completed %s, its receive was %d", w.QPNum, show(w), id)
		}
		delete(want, w.QPNum)
	}
}

func overrun(c *Case) {
	small := c.B.cq(2, nil)
	o := c.defaults()
	n := small.Capacity() + 2
	o.recvs = n
	o.rcq, o.scq = small, c.B.cq(8, nil)
	oa := c.defaults()
	oa.sends = n
	// B does not answer any more afterwards: do not wait long for that.
	oa.timeout, oa.retry = c.soonTimeout(), 1
	a, b := c.A.newQP(oa, psnA), c.B.newQP(o, psnB)
	c.connect(a, b)
	src, dst := c.A.region(8), c.B.region(8)
	for i := range n {
		b.recv(RR{id: uint64(i), sg: sg(dst.all())})
	}
	for i := range n {
		a.send(sendOf(uint64(i), src.all()))
	}
	c.B.untilEvent(small.CQ, verbs.EventCQErr)
	b.untilState(verbs.QPSErr)
	buf := c.B.wcBuffer(1)
	c.until("polling a dead queue must end in an errno", func() bool {
		_, err := verbs.Poll(small.CQ, buf)
		return err != nil
	})
	a.scq.take(1) // the rule does not cover the sender's status, but its request must end
}

func resize(c *Case) {
	a, _ := c.link(func(o *opts) { o.cqe, o.channel = 16, true })
	src, dst := c.A.region(8), c.B.region(8)
	for i := range 4 {
		a.send(writeOf(uint64(i), dst, 0, src.all()))
	}
	c.settle()
	err := a.scq.Resize(200)
	c.unsupported(err)
	c.must(err, "resize_cq to 200 entries")
	if a.scq.Capacity() < 200 {
		c.failf("a queue resized to 200 entries has %d", a.scq.Capacity())
	}
	for i := range 4 {
		a.send(writeOf(uint64(4+i), dst, 0, src.all()))
	}
	for i := range 8 {
		a.sent(a.scq.one(), uint64(i), verbs.WCRDMAWrite)
	}
	for i := range 3 {
		a.scq.arm(false)
		a.send(writeOf(uint64(10+i), dst, 0, src.all()))
		a.scq.untilEvent("a WRITE completes")
	}
	c.refused(a.scq.Resize(1), "resize_cq below what is queued") // 2 may be rounded up to 3
	for i := range 3 {
		a.sent(a.scq.one(), uint64(10+i), verbs.WCRDMAWrite)
	}
}

func userData(c *Case) {
	cq, err := c.A.ctx.CreateCQ(4, nil, 0, 0xfeed)
	c.must(err, "create_cq")
	c.defers(cq.Close)
	qp, err := c.A.pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, UserData: 0xbeef,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	c.must(err, "create_qp")
	c.defers(qp.Close)
	if cq.UserData() != 0xfeed || qp.UserData() != 0xbeef {
		c.failf("user data came back as %#x and %#x", cq.UserData(), qp.UserData())
	}
	if cq.Context() != c.A.ctx || qp.Context() != c.A.ctx {
		c.failf("the objects do not name their context")
	}
}
