package verbstest

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

const (
	fastTimeout     = 8  // the local ACK timeout of 1.05 ms
	emulatedTimeout = 15 // 134 ms: an emulated machine that has the processor to itself answers within two
)

// soonTimeout is for a link whose other end answers at first and is silent later. Real time may
// pass between a packet and its answer.
func (c *Case) soonTimeout() uint8 {
	if c.pair.Caps.Clock == nil {
		return emulatedTimeout
	}
	return fastTimeout
}

// maxTimeoutFactor is how much longer than requested a device may wait.
const maxTimeoutFactor = 4 // IBTA 9.7.6.1.3

var retryCases = []Spec{
	{Name: "retry_exceeded_when_nobody_answers", Rule: "IBTA 9.9.2.1.1; ibv_modify_qp(3) retry_cnt", needs: sendOnly, run: retryExceeded},
	{Name: "retry_exceeded_after_the_time_asked_for", Rule: "IBTA 9.7.6.1.3", needs: needs{ops: sendOnly.ops, clock: true}, run: retryTime},
	{Name: "timeout_zero_waits_for_ever", Rule: "IBTA 9.7.6.1.3; ibv_modify_qp(3)", needs: needs{ops: sendOnly.ops, clock: true}, run: timeoutZero},
	{Name: "partition_is_retry_exceeded_on_both_sides", Rule: "IBTA 9.9.2.1.1", needs: everyOp.onFaults(), run: partition},
	{Name: "partition_that_heals_is_not_noticed", Rule: "IBTA 9.7.5.1.3: retransmission", needs: everyOp.onFaults(), run: partitionHeals},
	{Name: "retry_count_starts_anew_with_progress", Rule: "IBTA 9.7.6.1.3: the counter is reset", needs: sendOnly.onPackets(), run: retryResets},
}

func retryExceeded(c *Case) {
	a, _ := c.link(func(o *opts) { o.stopB = verbs.QPSInit; o.timeout, o.retry = fastTimeout, 2 })
	src := c.A.region(64)
	a.recv(RR{id: 21})
	a.send(sendOf(1, src.all()), sendOf(2, src.all()).with(0))
	a.failed(a.scq.one(), 1, verbs.WCRetryExcErr)
	a.flushed(a.scq, 2)
	a.flushed(a.rcq, 21)
	a.untilState(verbs.QPSErr)
}

func retryTime(c *Case) {
	const retries, code = 3, 14
	a, _ := c.link(func(o *opts) { o.stopB = verbs.QPSInit; o.timeout, o.retry = code, retries })
	began := c.now()
	a.send(sendOf(1, c.A.region(64).all()))
	a.failed(a.scq.one(), 1, verbs.WCRetryExcErr)
	took := c.now() - began
	each := verbs.AckTimeout(code)
	if took < (retries+1)*each || took > (retries+1)*maxTimeoutFactor*each {
		c.failf("%d retries after %v each took %v; at least %v, at most %v", retries, each, took, (retries+1)*each, (retries+1)*maxTimeoutFactor*each)
	}
}

func timeoutZero(c *Case) {
	a, b := c.link(func(o *opts) { o.stopB = verbs.QPSInit; o.timeout, o.retry = 0, 1 })
	a.send(sendOf(1, c.A.region(64).all()))
	c.pass(time.Hour)
	for a.scq.poll() > 0 {
	}
	if len(a.scq.got) > 0 {
		c.failf("with timeout 0 the request ended: %s", show(a.scq.got[0]))
	}
	a.to(verbs.QPSErr)
	a.flushed(a.scq, 1)
	_ = b
}

func partition(c *Case) {
	src, dst := c.A.region(64), c.B.region(64)
	for i, mk := range []func(id uint64, from, to *Region) SR{
		func(id uint64, from, _ *Region) SR { return sendOf(id, from.all()) },
		func(id uint64, from, to *Region) SR { return writeOf(id, to, 0, from.all()) },
		func(id uint64, from, to *Region) SR { return readOf(id, to, 0, from.all()) },
		func(id uint64, from, to *Region) SR { return addOf(id, to, 0, 1, from.sge(0, 8)) },
	} {
		c.pair.Caps.Faults.Heal()
		a, b := c.link(func(o *opts) { o.timeout, o.retry = fastTimeout, 2 })
		a.recv(RR{id: 9, sg: sg(src.all())})
		b.recv(RR{id: 9, sg: sg(dst.all())})
		c.fault(c.A, c.B, Fault{Down: true})
		c.fault(c.B, c.A, Fault{Down: true})
		id := uint64(100 + i)
		a.send(mk(id, src, dst))
		b.send(mk(id, dst, src))
		a.failed(a.scq.one(), id, verbs.WCRetryExcErr)
		b.failed(b.scq.one(), id, verbs.WCRetryExcErr)
		a.flushed(a.rcq, 9)
		b.flushed(b.rcq, 9)
		c.bothDead(a, b)
	}
}

// The link is down for less than the total time of the retries.
func partitionHeals(c *Case) {
	a, b := c.link()
	src, dst := c.A.region(3000).fill(1), c.B.region(3000).poison()
	buf := c.A.region(3000)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	c.fault(c.A, c.B, Fault{Down: true})
	*dst.word(0) = 0
	a.send(sendOf(1, src.all()), addOf(2, dst, 0, 1, buf.sge(0, 8)), readOf(3, dst, 8, buf.sge(8, 2992)))
	c.pass(verbs.AckTimeout(defaultTimeout) / 2)
	a.scq.none("the link is down")
	c.pair.Caps.Faults.Heal()
	a.sent(a.scq.one(), 1, verbs.WCSend)
	a.sent(a.scq.one(), 2, verbs.WCFetchAdd)
	a.sent(a.scq.one(), 3, verbs.WCRDMARead)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 3000)
	c.same(buf.bytes()[8:], src.bytes()[8:], "what was sent and read back over a link that was down")
}

// Each of many messages loses its first packet: with two retries in total the queue pair would
// fail, with two for each it does not.
func retryResets(c *Case) {
	// More losses than retries. There are many retries, so that a process that gets no processor for some timeouts does
	// not fail.
	const n, retries = 8, 6
	a, b := c.link(func(o *opts) { o.timeout, o.retry = fastTimeout, retries; o.recvs = n })
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	for i := range n {
		b.recv(RR{id: uint64(i), sg: sg(dst.all())})
		c.fault(c.A, c.B, Fault{Drop: []uint64{1}})
		a.send(sendOf(uint64(i), src.all()))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		b.received(b.rcq.one(), uint64(i), verbs.WCRecv, 64)
	}
}
