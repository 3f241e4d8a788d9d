package verbstest

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// flowOps is the number of operations in each direction of a faulty link.
const flowOps = 60

var faultCases = []Spec{
	{Name: "mixed_traffic_both_ways_is_exact", Rule: "IBTA 9.7: reliable, in order, exactly once", needs: everyOp, run: func(c *Case) { c.faulty(Fault{}) }},
	{Name: "loss_is_repaired", Rule: "IBTA 9.7.5.1: retransmission", needs: everyOp.onFaults(), run: func(c *Case) { c.faulty(Fault{Loss: 0.05}) }},
	{Name: "duplicates_are_not_executed", Rule: "IBTA 9.7.1.1: duplicate requests", needs: everyOp.onFaults(), run: func(c *Case) { c.faulty(Fault{Dup: 0.2}) }},
	{Name: "reordering_is_repaired", Rule: "IBTA 9.7.1.1: PSN sequence errors", needs: everyOp.onFaults(), run: func(c *Case) { c.faulty(Fault{Reorder: 0.1}) }},
	{Name: "delay_and_jitter_are_waited_for", Rule: "IBTA 9.7.6.1.3", needs: everyOp.onFaults(), run: func(c *Case) {
		c.faulty(Fault{Delay: 20 * time.Microsecond, Jitter: 30 * time.Microsecond})
	}},
	{Name: "all_faults_at_once_are_repaired", Rule: "IBTA 9.7: reliable, in order, exactly once", needs: everyOp.onFaults(), run: func(c *Case) {
		c.faulty(Fault{Loss: 0.03, Dup: 0.05, Reorder: 0.05, Delay: 5 * time.Microsecond, Jitter: 5 * time.Microsecond})
	}},
	{Name: "messages_survive_all_faults_at_once", Rule: "IBTA 9.7: reliable, in order, exactly once", needs: messagesOnly.onFaults(), run: func(c *Case) {
		c.faultyWith(messages, Fault{Loss: 0.03, Dup: 0.05, Reorder: 0.05, Delay: 5 * time.Microsecond, Jitter: 5 * time.Microsecond})
	}},
	{Name: "lost_acknowledgement_executes_a_send_once", Rule: "IBTA 9.7.1.1, 9.7.5.1.2", needs: sendOnly.onPackets(), run: lostAckSend},
	{Name: "lost_acknowledgement_executes_an_atomic_once", Rule: "IBTA 9.4.5: replay of the saved result", needs: atomicOnly.onPackets(), run: lostAckAtomic},
	{Name: "repeated_atomic_is_executed_once", Rule: "IBTA 9.4.5: duplicate atomics", needs: atomicOnly.onFaults(), run: repeatedAtomic},
	{Name: "repeated_message_consumes_one_receive", Rule: "IBTA 9.7.1.1", needs: everyOp.onFaults(), run: repeatedMessage},
	{Name: "lost_read_response_is_asked_for_again", Rule: "IBTA 9.7.5.1.9: READ resumed", needs: readOnly.onPackets(), run: lostReadResponse},
	{Name: "repeated_read_is_beyond_what_was_agreed", Rule: "IBTA 9.7.8: max_dest_rd_atomic counts new requests", needs: needs{ops: readOnly.ops, rdAtom: 1, faults: true, clock: true}, run: repeatedRead},
	{Name: "lost_middle_of_a_message_is_sent_again", Rule: "IBTA 9.7.5.1.3: NAK, go back N", needs: sendWrite.onPackets(), run: lostMiddle},
	{Name: "late_duplicate_after_the_write_is_ignored", Rule: "IBTA 9.7.1.1; invariant 3", needs: writeOnly.onFaults(), run: lateDuplicate},
}

// faulty runs traffic over links with one fault in both directions.
func (c *Case) faulty(f Fault) { c.faultyWith(everything, f) }

func (c *Case) faultyWith(kinds []verbs.WROpcode, f Fault) {
	a, b := c.link(func(o *opts) { o.sends, o.recvs, o.rdAtom = 16, 32, uint8(min(4, c.pair.Caps.MaxRdAtom)) })
	if c.pair.Caps.Faults != nil {
		c.fault(c.A, c.B, f)
		c.fault(c.B, c.A, f)
	}
	c.traffic(a, b, kinds, flowOps, 0x5eed)
}

func lostAckSend(c *Case) {
	const n = 6
	a, b := c.link(func(o *opts) { o.timeout = fastTimeout })
	src, dst := c.A.region(64*n).fill(1), c.B.region(64*n).poison()
	for i := range n + 2 {
		b.recv(RR{id: uint64(i), sg: sg(dst.sge(64*min(i, n-1), 64))})
	}
	for i := range n {
		c.fault(c.B, c.A, Fault{Drop: []uint64{1}})
		a.send(sendOf(uint64(i), src.sge(64*i, 64)))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		b.received(b.rcq.one(), uint64(i), verbs.WCRecv, 64)
	}
	b.rcq.none("each message was received once, whatever was lost")
	c.same(dst.bytes(), src.bytes(), "the messages whose acknowledgements were lost")
}

func lostAckAtomic(c *Case) {
	a, _ := c.link(func(o *opts) { o.timeout = fastTimeout })
	res, dst := c.A.region(8), c.B.region(16)
	for i := range uint64(8) {
		c.fault(c.B, c.A, Fault{Drop: []uint64{1}})
		a.send(addOf(i, dst, 0, 1, res.sge(0, 8)))
		a.sent(a.scq.one(), i, verbs.WCFetchAdd)
		if *res.word(0) != i || *dst.word(0) != i+1 {
			c.failf("addition %d returned %d and left %d: it was executed more than once", i, *res.word(0), *dst.word(0))
		}
		c.fault(c.B, c.A, Fault{Drop: []uint64{1}})
		a.send(casOf(i, dst, 8, i, i+1, res.sge(0, 8)))
		a.sent(a.scq.one(), i, verbs.WCCompSwap)
		if *res.word(0) != i || *dst.word(8) != i+1 {
			c.failf("swap %d returned %d and left %d: the replayed result must be the first", i, *res.word(0), *dst.word(8))
		}
	}
}

func repeatedAtomic(c *Case) {
	const n = 12
	a, _ := c.link(func(o *opts) { o.sends = n })
	res, dst := c.A.region(8*n), c.B.region(8)
	c.fault(c.A, c.B, Fault{Dup: 1})
	c.fault(c.B, c.A, Fault{Dup: 1})
	var list []SR
	for i := range n {
		list = append(list, addOf(uint64(i), dst, 0, 1, res.sge(8*i, 8)))
	}
	a.send(list...)
	for i, w := range a.scq.take(n) {
		a.sent(w, uint64(i), verbs.WCFetchAdd)
		if got := *res.word(8 * i); got != uint64(i) {
			c.failf("addition %d returned %d", i, got)
		}
	}
	c.settle()
	if got := *dst.word(0); got != n {
		c.failf("%d additions left %d", n, got)
	}
}

func repeatedMessage(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	c.fault(c.A, c.B, Fault{Dup: 1})
	for i := range 4 {
		b.recv(RR{id: uint64(i), sg: sg(dst.all())})
	}
	a.send(sendOf(1, src.all()), writeImmOf(2, 2, dst, 0, src.all()))
	b.received(b.rcq.one(), 0, verbs.WCRecv, 64)
	b.received(b.rcq.one(), 1, verbs.WCRecvRDMAWithImm, 64)
	a.scq.take(2)
	b.rcq.none("a repeated message is received once")
	a.scq.none("a repeated message completes once")
}

func lostReadResponse(c *Case) {
	for drop := uint64(1); drop <= 5; drop++ {
		a, _ := c.link(func(o *opts) { o.mtu, o.timeout = min(o.mtu, verbs.MTU1024), fastTimeout })
		src, dst := c.B.region(4500).fill(int(drop)), c.A.region(4500)
		c.fault(c.B, c.A, Fault{Drop: []uint64{drop}})
		a.send(readOf(1, src, 0, dst.all()), readOf(2, src, 0, dst.sge(0, 8)))
		a.sent(a.scq.one(), 1, verbs.WCRDMARead)
		a.sent(a.scq.one(), 2, verbs.WCRDMARead)
		c.same(dst.bytes(), src.bytes(), "a READ that lost a packet of its response")
	}
}

// One READ may be outstanding. Its answer is so late that the request is repeated, and the
// repetition so late that it arrives together with the next READ:
//
//	time        A to B                      B to A
//	0           READ 1
//	T           READ 1 again (arrives T+2d)
//	T+d         READ 2 (arrives T+2d)       answer to READ 1
//
// That is no more than was agreed, though the responder owes two answers.
func repeatedRead(c *Case) {
	const d = 50 * time.Microsecond
	a, b := c.link(func(o *opts) { o.rdAtom, o.timeout = 1, fastTimeout })
	src, dst := c.B.region(128).fill(1), c.A.region(128).poison()
	c.fault(c.B, c.A, Fault{Late: map[uint64]time.Duration{1: verbs.AckTimeout(fastTimeout) + d}})
	c.fault(c.A, c.B, Fault{Late: map[uint64]time.Duration{2: 2 * d, 3: d}})
	a.send(readOf(1, src, 0, dst.sge(0, 64)), readOf(2, src, 64, dst.sge(64, 64)))
	a.sent(a.scq.one(), 1, verbs.WCRDMARead)
	a.sent(a.scq.one(), 2, verbs.WCRDMARead)
	c.same(dst.bytes(), src.bytes(), "two READs of which one was repeated")
	if s := b.state(); s != verbs.QPSRTS {
		c.failf("the responder is in %v", s)
	}
}

func lostMiddle(c *Case) {
	for drop := uint64(1); drop <= 5; drop++ {
		a, b := c.link(func(o *opts) { o.mtu, o.timeout = min(o.mtu, verbs.MTU1024), fastTimeout })
		src, dst := c.A.region(4500).fill(int(drop)), c.B.region(4500).poison()
		b.recv(RR{id: 9, sg: sg(dst.all())})
		c.fault(c.A, c.B, Fault{Drop: []uint64{drop}})
		a.send(sendOf(1, src.all()), sendOf(2))
		b.recv(RR{id: 10})
		a.sent(a.scq.one(), 1, verbs.WCSend)
		a.sent(a.scq.one(), 2, verbs.WCSend)
		b.received(b.rcq.one(), 9, verbs.WCRecv, 4500)
		b.received(b.rcq.one(), 10, verbs.WCRecv, 0)
		c.same(dst.bytes(), src.bytes(), "a SEND that lost a packet")
		dst.poison()
		c.fault(c.A, c.B, Fault{Drop: []uint64{drop}})
		a.send(writeOf(3, dst, 0, src.all()))
		a.sent(a.scq.one(), 3, verbs.WCRDMAWrite)
		c.same(dst.bytes(), src.bytes(), "a WRITE that lost a packet")
	}
}

// A copy that comes after the completion finds its packet number old: it must
// not write into memory that means something else by then.
func lateDuplicate(c *Case) {
	a, _ := c.link()
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	c.fault(c.A, c.B, Fault{Dup: 1, Jitter: 200 * time.Microsecond})
	for i := range 10 {
		a.send(writeOf(uint64(i), dst, 0, src.fill(i).all()))
		a.sent(a.scq.one(), uint64(i), verbs.WCRDMAWrite)
		dst.poison()
		src.poison() // the completion gave the source back, too
		c.settle()
		c.untouched(dst.bytes(), "the target of a WRITE that had completed")
	}
}
