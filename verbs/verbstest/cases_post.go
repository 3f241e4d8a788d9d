package verbstest

import (
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var postCases = []Spec{
	{Name: "bad_wr_splits_a_send_list_at_each_position", Rule: "semantics 22; invariant 7", needs: sendWrite, run: badSendSplits},
	{Name: "bad_wr_splits_a_receive_list_at_each_position", Rule: "semantics 22; invariant 7", needs: sendOnly, run: badRecvSplits},
	{Name: "send_queue_full_is_enomem", Rule: "semantics 23; rxe post_one_send", needs: sendOnly, run: sqFull},
	{Name: "receive_queue_full_is_enomem", Rule: "semantics 23; rxe rxe_post_one_recv", needs: sendOnly, run: rqFull},
	{Name: "too_many_elements_are_refused", Rule: "semantics 23; ibv_post_send(3)", needs: sendOnly, run: tooManySGE},
	{Name: "unknown_opcode_is_refused", Rule: "ibv_post_send(3) EINVAL", run: unknownOpcode},
	{Name: "sends_before_rts_are_refused", Rule: "IBTA 10.8.3.1 C10-96", needs: sendOnly, run: sendTooEarly},
	{Name: "receives_in_reset_are_refused", Rule: "IBTA C10-97.2.1; rxe rxe_post_recv", run: recvInReset},
	{Name: "receives_in_init_are_used_after_rtr", Rule: "semantics 17; IBTA 10.3.1.2", needs: sendOnly, run: recvInInit},
	{Name: "turn_posts_groups_independently", Rule: "contract: Turn, SendGroup", needs: sendOnly, run: turnGroups},
	{Name: "turn_arms_before_it_polls", Rule: "contract: Turn", needs: sendOnly, run: turnOrder},
	{Name: "empty_groups_do_nothing", Rule: "contract: Turn", run: emptyGroups},
}

// badAt is the number of requests in the lists of the bad_wr cases.
const badAt = 5

func badSendSplits(c *Case) {
	for at := range badAt {
		a, b := c.link(func(o *opts) { o.sges = 1 })
		src, dst := c.A.region(64).fill(at), c.B.region(64*badAt).poison()
		var list []SR
		for i := range badAt {
			r := writeOf(uint64(i), dst, 64*i, src.all())
			if i == at { // more elements than the queue pair accepts
				for range a.cap.MaxSendSGE {
					r.sg = append(r.sg, src.sge(0, 1))
				}
			}
			list = append(list, r)
		}
		n, err := a.trySend(list...)
		if n != at {
			c.failf("the list is bad at %d, %d were accepted (%v)", at, n, err)
		}
		c.wantErrno(err, fmt.Sprintf("a list that is bad at %d", at), syscall.EINVAL, syscall.ENOMEM)
		for i := range at {
			a.sent(a.scq.one(), uint64(i), verbs.WCRDMAWrite)
		}
		a.scq.none("the refused request and those behind it were never posted")
		c.untouched(dst.bytes()[64*at:], "the targets of requests that were not posted")
		// The queue pair still works.
		a.send(writeOf(99, dst, 0, src.all()))
		a.sent(a.scq.one(), 99, verbs.WCRDMAWrite)
		if s := b.state(); s != verbs.QPSRTS {
			c.failf("the peer of a refused post is in %v", s)
		}
	}
}

func badRecvSplits(c *Case) {
	for at := range badAt {
		a, b := c.link(func(o *opts) { o.sges = 1 })
		src, dst := c.A.region(64).fill(at), c.B.region(64)
		var list []RR
		for i := range badAt {
			r := RR{id: uint64(i), sg: sg(dst.all())}
			if i == at {
				for range b.cap.MaxRecvSGE {
					r.sg = append(r.sg, dst.sge(0, 1))
				}
			}
			list = append(list, r)
		}
		n, err := b.tryRecv(list...)
		if n != at {
			c.failf("the list is bad at %d, %d were accepted (%v)", at, n, err)
		}
		c.wantErrno(err, fmt.Sprintf("a list that is bad at %d", at), syscall.EINVAL, syscall.ENOMEM)
		b.recv(RR{id: 100, sg: sg(dst.all())})
		for i := range at + 1 {
			a.send(sendOf(uint64(i), src.all()))
			a.sent(a.scq.one(), uint64(i), verbs.WCSend)
			want := uint64(i)
			if i == at {
				want = 100 // posted after the split
			}
			b.received(b.rcq.one(), want, verbs.WCRecv, 64)
		}
	}
}

func sqFull(c *Case) {
	a, b := c.link(func(o *opts) { o.stopB = verbs.QPSInit; o.timeout = 0; o.sends = 4; o.cqe = 600 })
	r := c.A.region(64)
	var list []SR
	for i := range int(a.cap.MaxSendWR) + 3 {
		list = append(list, sendOf(uint64(i), r.all()))
	}
	n, err := a.trySend(list...)
	if n != int(a.cap.MaxSendWR) {
		c.failf("a send queue of %d took %d requests", a.cap.MaxSendWR, n)
	}
	c.wantErrno(err, "a full send queue", syscall.ENOMEM)
	n, err = a.trySend(list[0])
	if n != 0 {
		c.failf("a full send queue took another request")
	}
	c.wantErrno(err, "a full send queue", syscall.ENOMEM)
	a.to(verbs.QPSErr)
	for i := range int(a.cap.MaxSendWR) {
		a.failed(a.scq.one(), uint64(i), verbs.WCWRFlushErr)
	}
	a.scq.none("the refused requests were never posted")
	_ = b
}

func rqFull(c *Case) {
	a, b := c.link(func(o *opts) { o.recvs = 4; o.cqe = 600 })
	src, dst := c.A.region(8).fill(1), c.B.region(64)
	var list []RR
	for i := range int(b.cap.MaxRecvWR) + 3 {
		list = append(list, RR{id: uint64(i), sg: sg(dst.all())})
	}
	n, err := b.tryRecv(list...)
	if n != int(b.cap.MaxRecvWR) {
		c.failf("a receive queue of %d took %d receives", b.cap.MaxRecvWR, n)
	}
	c.wantErrno(err, "a full receive queue", syscall.ENOMEM)
	// One was used, so one slot is free again.
	a.send(sendOf(1, src.all()))
	b.received(b.rcq.one(), 0, verbs.WCRecv, 8)
	b.recv(RR{id: 777, sg: sg(dst.all())})
}

func tooManySGE(c *Case) {
	a, _ := c.link(func(o *opts) { o.sges = min(2, c.pair.Caps.MaxSGE) })
	r := c.A.region(256)
	var s []verbs.SGE
	for i := range int(max(a.cap.MaxSendSGE, a.cap.MaxRecvSGE)) + 1 {
		s = append(s, r.sge(i%256, 1))
	}
	_, err := a.trySend(SR{id: 1, op: verbs.WRSend, flags: signaled, sg: s})
	c.wantErrno(err, "a send with more elements than granted", syscall.EINVAL, syscall.ENOMEM)
	_, err = a.tryRecv(RR{id: 1, sg: s})
	c.wantErrno(err, "a receive with more elements than granted", syscall.EINVAL, syscall.ENOMEM)
	a.scq.none("a refused request does not complete")
	if s := a.state(); s != verbs.QPSRTS {
		c.failf("a refused post moved the queue pair to %v", s)
	}
}

func unknownOpcode(c *Case) {
	a, _ := c.link()
	r := c.A.region(64)
	for _, op := range []verbs.WROpcode{12, 13, 16, 31, 200, ^verbs.WROpcode(0)} {
		n, err := a.trySend(SR{id: 1, op: op, flags: signaled, sg: sg(r.all())})
		if n != 0 {
			c.failf("a request with opcode %d was accepted", uint32(op))
		}
		c.wantErrno(err, fmt.Sprintf("opcode %d", uint32(op)), syscall.EINVAL, syscall.EOPNOTSUPP)
	}
	a.scq.none("a refused request does not complete")
}

func sendTooEarly(c *Case) {
	r := c.A.region(64)
	for s, q := range stateQPs(c) {
		if s != verbs.QPSReset && s != verbs.QPSInit && s != verbs.QPSRTR {
			continue
		}
		n, err := q.trySend(sendOf(1, r.all()))
		if n != 0 {
			c.failf("a send was accepted in %v", s)
		}
		c.wantErrno(err, "post_send in "+s.String(), syscall.EINVAL)
		q.scq.none("a refused request does not complete")
	}
}

func recvInReset(c *Case) {
	q := c.A.newQP(c.defaults(), psnA)
	n, err := q.tryRecv(RR{id: 1, sg: sg(c.A.region(64).all())})
	if n != 0 {
		c.failf("a receive was accepted in RESET")
	}
	c.wantErrno(err, "post_recv in RESET", syscall.EINVAL)
}

func recvInInit(c *Case) {
	a, b := c.link(func(o *opts) { o.stopB = verbs.QPSInit })
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	b.rcq.none("a receive posted in INIT waits")
	b.toRTR(a.info())
	a.send(sendOf(1, src.all()))
	b.received(b.rcq.one(), 9, verbs.WCRecv, 64)
	a.sent(a.scq.one(), 1, verbs.WCSend)
	c.same(dst.bytes(), src.bytes(), "the receive posted in INIT")
}
