package verbstest

import (
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var awOnly = needs{caps: verbs.CapAtomicWrite, ops: verbs.Opcodes(verbs.WRAtomicWrite, verbs.WRRDMAWrite), rdAtom: 1}

var atomicWriteCases = []Spec{
	{Name: "atomic_write_writes_8_bytes", Rule: "IBTA A19.5; ibv_wr_atomic_write(3); semantics 3", needs: awOnly, run: awWrites},
	{Name: "atomic_write_in_a_plain_list_is_refused", Rule: "contract: SendGroup.Extended", needs: awOnly.with(func(n *needs) { n.caps |= verbs.CapFlushGlobal }), run: func(c *Case) { plainRefused(c, false) }},
	{Name: "atomic_write_to_an_odd_address_is_refused", Rule: "IBTA A19.5: 8-byte aligned; rxe RESPST_ERR_MISALIGNED_ATOMIC", needs: awOnly, run: awOdd},
	{Name: "atomic_write_needs_remote_write", Rule: "rxe check_rkey: REMOTE_WRITE", needs: awOnly, run: awAccess},
	{Name: "atomic_write_to_a_queue_pair_without_remote_write_is_refused", Rule: "rxe check_op_valid", needs: awOnly, run: awNotEnabled},
	{Name: "atomic_write_beyond_the_region_is_refused", Rule: "IBTA A19.5: range", needs: awOnly, run: awRange},
	{Name: "atomic_write_by_a_wrong_key_is_refused", Rule: "IBTA A19.5: R_Key", needs: awOnly, run: awWrongKey},
	{Name: "atomic_writes_are_executed_in_order", Rule: "IBTA A19.5: ordered with what is before", needs: awOnly, run: awOrder},
	{Name: "atomic_write_lost_is_executed_once", Rule: "IBTA 9.7.5.1; rxe atomic_write_reply: replayed", needs: awOnly.onPackets(), run: awLost},
	{Name: "atomic_write_behind_an_error_is_flushed", Rule: "semantics 34", needs: awOnly, run: awFlushed},
}

func awWrites(c *Case) {
	a, _ := c.link()
	dst := c.B.region(64).poison()
	const v = 0x0123456789abcdef
	a.send(atomicWriteOf(1, dst, 8, v))
	a.sent(a.scq.one(), 1, verbs.WCAtomicWrite)
	if got := *dst.word(8); got != v {
		c.failf("%#x was written, memory holds %#x", uint64(v), got)
	}
	c.untouched(dst.bytes()[:8], "the memory before")
	c.untouched(dst.bytes()[16:], "the memory behind")
}

func awOdd(c *Case) {
	for _, off := range []int{1, 4} {
		a, b := c.link()
		dst := c.B.region(64).poison()
		a.awFails(b, "an ATOMIC_WRITE to an odd address", atomicWriteOf(1, dst, off, 7), verbs.WCRemInvReqErr, verbs.WCRemAccessErr)
		c.untouched(dst.bytes(), "the target")
	}
}

// awFails posts an ATOMIC_WRITE that either end refuses.
func (q *QP) awFails(peer *QP, what string, r SR, want ...verbs.WCStatus) {
	q.c.t.Helper()
	if _, err := q.trySend(r); err != nil {
		q.c.wantErrno(err, what, syscall.EINVAL)
		return
	}
	q.failed(q.scq.one(), r.id, want...)
	q.c.bothDead(q, peer)
}

func awAccess(c *Case) {
	for _, access := range []verbs.AccessFlags{fullAccess &^ verbs.AccessRemoteWrite, verbs.AccessRemoteRead} {
		a, b := c.link()
		dst := c.B.regionOf(c.B.pd, 64, access, 0).poison()
		c.notDone(a, b, atomicWriteOf(1, dst, 0, 7), verbs.WCRemAccessErr)
		c.untouched(dst.bytes(), "a region without REMOTE_WRITE")
	}
}

func awNotEnabled(c *Case) {
	a, b := c.link(func(o *opts) { o.access = fullAccess &^ verbs.AccessRemoteWrite })
	dst := c.B.region(64).poison()
	c.notDone(a, b, atomicWriteOf(1, dst, 0, 7), notEnabled...)
	c.untouched(dst.bytes(), "memory that the queue pair does not let be written")
}

func awRange(c *Case) {
	for _, off := range []int{64, 60, -8} {
		a, b := c.link()
		dst := c.B.region(64).poison()
		a.awFails(b, "an ATOMIC_WRITE beyond its region", atomicWriteOf(1, dst, off, 7), verbs.WCRemAccessErr, verbs.WCRemInvReqErr)
		c.untouched(dst.bytes(), "the target")
	}
}

func awWrongKey(c *Case) {
	a, b := c.link()
	dst := c.B.region(64).poison()
	r := atomicWriteOf(1, dst, 0, 7)
	c.notDone(a, b, r.key(r.rkey^0x00c0ffee), verbs.WCRemAccessErr)
	c.untouched(dst.bytes(), "the target")
}

func awOrder(c *Case) {
	const n = 12
	a, _ := c.link(func(o *opts) { o.sends = n + 1 })
	dst, src := c.B.region(64), c.A.region(8).fill(9)
	list := []SR{writeOf(100, dst, 0, src.all())}
	for i := range n {
		list = append(list, atomicWriteOf(uint64(i), dst, 0, uint64(i)))
	}
	a.send(list...)
	a.sent(a.scq.one(), 100, verbs.WCRDMAWrite)
	for i := range n {
		a.sent(a.scq.one(), uint64(i), verbs.WCAtomicWrite)
	}
	if got := *dst.word(0); got != n-1 {
		c.failf("the last of %d ATOMIC_WRITEs wrote %d, memory holds %d", n, n-1, got)
	}
}

// The answer is lost; by the time the request is repeated B has written another value there,
// which must stay.
func awLost(c *Case) {
	a, _ := c.link(func(o *opts) { o.timeout = fastTimeout })
	dst := c.B.region(64)
	c.fault(c.B, c.A, Fault{Drop: []uint64{1}})
	a.send(atomicWriteOf(1, dst, 0, 7))
	c.until("the first ATOMIC_WRITE must arrive", func() bool { return atomic.LoadUint64(dst.word(0)) == 7 })
	atomic.StoreUint64(dst.word(0), 8)
	a.sent(a.scq.one(), 1, verbs.WCAtomicWrite)
	if got := atomic.LoadUint64(dst.word(0)); got != 8 {
		c.failf("an ATOMIC_WRITE whose answer was lost was executed again: memory holds %d", got)
	}
}

func awFlushed(c *Case) {
	a, b := c.link()
	dst, src := c.B.region(64).poison(), c.A.region(8)
	bad := writeOf(1, dst, 0, src.all())
	a.send(bad.key(bad.rkey^0x00c0ffee), atomicWriteOf(2, dst, 8, 7))
	a.failed(a.scq.one(), 1, verbs.WCRemAccessErr)
	a.flushed(a.scq, 2)
	c.bothDead(a, b)
	c.untouched(dst.bytes(), "the target")
}
