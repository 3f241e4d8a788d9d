package verbstest

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var boundsCases = []Spec{
	{Name: "message_over_the_port_limit_is_refused", Rule: "ibv_query_port(3) max_msg_sz; IBTA 9.3.3.1", needs: needs{ops: writeOnly.ops, sge: 2}, run: tooLargeMessage},
	{Name: "send_queue_slots_come_back", Rule: "semantics 30", needs: writeOnly, run: slotsComeBack},
	{Name: "deep_queue_runs_full", Rule: "ibv_create_qp(3): max_send_wr", needs: sendOnly, run: deepQueue},
}

// All elements of one request name one region, so that a message over the limit needs little
// memory.
func tooLargeMessage(c *Case) {
	n := c.pair.Caps.MaxSGE
	each := int(c.pair.Caps.MaxMsg/uint64(n)) + 1
	const most = 1 << 30
	if each > most {
		c.skipped = "the port's limit cannot be exceeded with the elements of one request"
		c.t.Skip("not applicable: " + c.skipped)
	}
	a, _ := c.link(func(o *opts) { o.sges = n })
	src, dst := c.A.region(each), c.B.region(64).poison()
	r := writeOf(1, dst, 0)
	for range n {
		r.sg = append(r.sg, src.all())
	}
	if _, err := a.trySend(r); err != nil {
		c.wantErrno(err, "a message over the port's limit", syscall.EINVAL, syscall.ENOMEM, syscall.EMSGSIZE)
		return
	}
	a.failed(a.scq.one(), 1, verbs.WCLocLenErr, verbs.WCRemAccessErr, verbs.WCRemInvReqErr)
	c.untouched(dst.bytes(), "the target of a message over the limit")
}

// Ten times the depth passes through, with one signaled request per half queue.
func slotsComeBack(c *Case) {
	a, _ := c.link(func(o *opts) { o.sends = 8 })
	depth := int(a.cap.MaxSendWR)
	src, dst := c.A.region(8).fill(1), c.B.region(8)
	half := depth / 2
	for round := range 20 {
		var list []SR
		for i := range half {
			r := writeOf(uint64(round*half+i), dst, 0, src.all())
			if i+1 < half {
				r.flags = 0
			}
			list = append(list, r)
		}
		a.send(list...)
		a.sent(a.scq.one(), uint64(round*half+half-1), verbs.WCRDMAWrite)
	}
	a.scq.none("only the signaled requests complete")
}

func deepQueue(c *Case) {
	depth := min(c.pair.Caps.MaxQPWR, 512)
	a, b := c.link(func(o *opts) { o.sends, o.recvs = depth, depth })
	src, dst := c.A.region(4*depth), c.B.region(4*depth).poison()
	src.fill(3)
	var rs []RR
	var ss []SR
	for i := range depth {
		rs = append(rs, RR{id: uint64(i), sg: sg(dst.sge(4*i, 4))})
		ss = append(ss, sendOf(uint64(i), src.sge(4*i, 4)))
	}
	b.recv(rs...)
	a.send(ss...)
	for i, w := range b.rcq.take(depth) {
		b.received(w, uint64(i), verbs.WCRecv, 4)
	}
	for i, w := range a.scq.take(depth) {
		a.sent(w, uint64(i), verbs.WCSend)
	}
	c.same(dst.bytes(), src.bytes(), "as many messages as the queue is deep")
}
