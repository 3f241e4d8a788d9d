package verbstest

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// flushable is the access of a region that FLUSH may reach.
const flushable = fullAccess | verbs.AccessFlushGlobal

var (
	flushOnly = needs{caps: verbs.CapFlushGlobal, ops: verbs.Opcodes(verbs.WRFlush, verbs.WRRDMAWrite), rdAtom: 1}
	persists  = needs{caps: verbs.CapFlushPersistent, ops: flushOnly.ops, rdAtom: 1, persist: true}
)

var flushOpCases = []Spec{
	{Name: "flush_completes_after_the_writes_before_it", Rule: "IBTA A19.4: FLUSH; ibv_wr_flush(3)", needs: flushOnly, run: flushAfterWrites},
	{Name: "flush_of_a_region_needs_no_range", Rule: "IBTA A19.3: selectivity MR", needs: flushOnly, run: flushWholeMR},
	{Name: "flush_in_a_plain_list_is_refused", Rule: "contract: SendGroup.Extended; ibv_wr_post(3): no opcode of ibv_post_send", needs: flushOnly, run: func(c *Case) { plainRefused(c, true) }},
	{Name: "flush_of_a_region_without_flush_access_is_refused", Rule: "IBTA A19.4; ibv_reg_mr(3): FLUSH_GLOBAL", needs: flushOnly, run: flushNoAccess},
	{Name: "flush_to_a_queue_pair_without_flush_access_is_refused", Rule: "IBTA A19.4: not enabled; rxe check_op_valid", needs: flushOnly, run: flushNotEnabled},
	{Name: "flush_beyond_the_region_is_refused", Rule: "IBTA A19.4: range", needs: flushOnly, run: flushRangeErr},
	{Name: "flush_by_a_wrong_key_is_refused", Rule: "IBTA A19.4: R_Key", needs: flushOnly, run: flushWrongKey},
	{Name: "flush_to_persistence_of_other_memory_is_refused", Rule: "ibv_reg_mr(3): FLUSH_PERSISTENT; rxe process_flush", needs: flushOnly, run: flushNotPersistent},
	{Name: "flush_to_persistence_completes", Rule: "IBTA A19.4; semantics 4", needs: persists, run: flushPersists},
	{Name: "flush_with_an_error_before_it_is_flushed", Rule: "semantics 34", needs: flushOnly, run: flushFlushed},
	{Name: "extended_list_fails_whole", Rule: "semantics 22: ibv_wr_complete; contract: SendGroup", needs: flushOnly, run: extendedWhole},
	{Name: "extended_list_takes_plain_requests_too", Rule: "ibv_wr_post(3)", needs: flushOnly, run: extendedPlain},
	{Name: "flush_lost_is_asked_again", Rule: "IBTA A19.4: as a READ; 9.7.5.1", needs: flushOnly.onPackets(), run: flushLost},
}

// flushLink makes a link whose queue pairs permit FLUSH, and memory.
func (c *Case) flushLink(mod ...func(*opts)) (a, b *QP, dst, src *Region) {
	c.t.Helper()
	a, b = c.link(append([]func(*opts){func(o *opts) { o.access = flushable }}, mod...)...)
	return a, b, c.B.regionOf(c.B.pd, 4096, flushable, 0).poison(), c.A.region(512).fill(1)
}

func flushAfterWrites(c *Case) {
	a, _, dst, src := c.flushLink()
	a.send(writeOf(1, dst, 0, src.all()), writeOf(2, dst, 512, src.all()), flushOf(3, dst, 0, 1024, verbs.FlushGlobal, verbs.FlushRange))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
	a.sent(a.scq.one(), 3, verbs.WCFlush)
	c.same(dst.bytes()[:512], src.bytes(), "the first WRITE")
	c.same(dst.bytes()[512:1024], src.bytes(), "the second WRITE")
	c.untouched(dst.bytes()[1024:], "the memory behind")
}

func flushWholeMR(c *Case) {
	a, _, dst, src := c.flushLink()
	a.send(writeOf(1, dst, 0, src.all()), flushOf(2, dst, 0, 0, verbs.FlushGlobal, verbs.FlushMR))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	a.sent(a.scq.one(), 2, verbs.WCFlush)
}

// plainRefused: these opcodes have no form in ibv_send_wr.
func plainRefused(c *Case, flush bool) {
	a, _, dst, src := c.flushLink()
	bad := atomicWriteOf(2, dst, 0, 7)
	if flush {
		bad = flushOf(2, dst, 0, 64, verbs.FlushGlobal, verbs.FlushRange)
	}
	n, err := a.post(false, []SR{writeOf(1, dst, 512, src.sge(0, 8)), bad, writeOf(3, dst, 600, src.sge(0, 8))})
	if n != 1 {
		c.failf("a plain list that holds %v at 1 was accepted up to %d", bad.op, n)
	}
	c.wantErrno(err, "a plain list with "+bad.op.String(), syscall.EINVAL, syscall.EOPNOTSUPP)
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	a.scq.none("the other requests were never posted")
	c.untouched(dst.bytes()[:512], "the target of a request that was not posted")
}

// notDone checks that the peer refused a FLUSH or an ATOMIC_WRITE.
func (c *Case) notDone(a, b *QP, r SR, want ...verbs.WCStatus) {
	c.t.Helper()
	a.send(r)
	a.failed(a.scq.one(), r.id, want...)
	c.bothDead(a, b)
}

func flushNoAccess(c *Case) {
	a, b, _, _ := c.flushLink()
	c.notDone(a, b, flushOf(1, c.B.region(512), 0, 512, verbs.FlushGlobal, verbs.FlushRange), verbs.WCRemAccessErr)
}

func flushNotEnabled(c *Case) {
	a, b := c.link(func(o *opts) { o.access = fullAccess })
	dst := c.B.regionOf(c.B.pd, 512, flushable, 0)
	c.notDone(a, b, flushOf(1, dst, 0, 512, verbs.FlushGlobal, verbs.FlushRange), notEnabled...)
}

func flushRangeErr(c *Case) {
	for _, x := range []struct{ off, n int }{{1, 4096}, {4096, 1}, {-1, 8}} {
		a, b, dst, _ := c.flushLink()
		c.notDone(a, b, flushOf(1, dst, x.off, x.n, verbs.FlushGlobal, verbs.FlushRange), verbs.WCRemAccessErr)
	}
}

func flushWrongKey(c *Case) {
	for _, reach := range []verbs.FlushSelectivity{verbs.FlushRange, verbs.FlushMR} {
		a, b, dst, _ := c.flushLink()
		r := flushOf(1, dst, 0, 64, verbs.FlushGlobal, reach)
		c.notDone(a, b, r.key(r.rkey^0x00c0ffee), verbs.WCRemAccessErr)
	}
}

func flushNotPersistent(c *Case) {
	a, b, dst, _ := c.flushLink()
	c.notDone(a, b, flushOf(1, dst, 0, 512, verbs.FlushPersistent, verbs.FlushRange), notEnabled...)
}

// diskTimeout is the local ACK timeout, 1.07 s, for an answer that waits for a disk shared with
// other programs.
const diskTimeout = 18

func flushPersists(c *Case) {
	const access = flushable | verbs.AccessFlushPersistent
	a, _ := c.link(func(o *opts) { o.access, o.timeout = access, diskTimeout })
	m, err := c.pair.Caps.Persistent(4096)
	c.must(err, "mapping memory that survives")
	c.defers(m.Unmap)
	mr, err := c.B.pd.RegMR(m.Addr(), 4096, m.Addr(), access)
	c.must(err, "reg_mr with FLUSH_PERSISTENT")
	dst := &Region{end: c.B, arena: m, mr: mr, n: 4096}
	c.defers(dst.close)
	src := c.A.region(512).fill(1)
	a.send(writeOf(1, dst, 0, src.all()), flushOf(2, dst, 0, 512, verbs.FlushPersistent, verbs.FlushRange),
		flushOf(3, dst, 0, 0, verbs.FlushPersistent|verbs.FlushGlobal, verbs.FlushMR))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	a.sent(a.scq.one(), 2, verbs.WCFlush)
	a.sent(a.scq.one(), 3, verbs.WCFlush)
	c.same(dst.bytes()[:512], src.bytes(), "what was made persistent")
}

func flushFlushed(c *Case) {
	a, b, dst, src := c.flushLink()
	bad := writeOf(1, dst, 0, src.all())
	a.send(bad.key(bad.rkey^0x00c0ffee), flushOf(2, dst, 0, 64, verbs.FlushGlobal, verbs.FlushRange))
	a.failed(a.scq.one(), 1, verbs.WCRemAccessErr)
	a.flushed(a.scq, 2)
	c.bothDead(a, b)
}

func extendedWhole(c *Case) {
	a, _, dst, src := c.flushLink(func(o *opts) { o.sges = 1 })
	bad := writeOf(3, dst, 512, src.sge(0, 8))
	for range a.cap.MaxSendSGE {
		bad.sg = append(bad.sg, src.sge(0, 1))
	}
	n, err := a.post(true, []SR{writeOf(1, dst, 0, src.sge(0, 8)), flushOf(2, dst, 0, 8, verbs.FlushGlobal, verbs.FlushRange), bad, writeOf(4, dst, 600, src.sge(0, 8))})
	if n != 0 || err == nil {
		c.failf("an extended list with a bad request was accepted up to %d (%v)", n, err)
	}
	a.scq.none("an extended list fails whole")
	c.untouched(dst.bytes(), "the targets of a list that was not posted")
	a.send(writeOf(5, dst, 0, src.all()))
	a.sent(a.scq.one(), 5, verbs.WCRDMAWrite)
}

func extendedPlain(c *Case) {
	a, b, dst, src := c.flushLink()
	b.recv(RR{id: 9, sg: sg(c.B.region(512).all())})
	rs := []SR{writeOf(1, dst, 0, src.all()), sendOf(2, src.all()), flushOf(3, dst, 0, 512, verbs.FlushGlobal, verbs.FlushRange), writeOf(4, dst, 512, src.all())}
	n, err := a.post(true, rs)
	c.must(err, "an extended list")
	if n != len(rs) {
		c.failf("an extended list of %d was accepted up to %d", len(rs), n)
	}
	for _, r := range rs {
		a.sent(a.scq.one(), r.id, r.op.Completion())
	}
	b.received(b.rcq.one(), 9, verbs.WCRecv, 512)
	c.same(dst.bytes()[512:1024], src.bytes(), "a WRITE behind a FLUSH")
}

func flushLost(c *Case) {
	for _, back := range []bool{false, true} {
		a, _, dst, src := c.flushLink(func(o *opts) { o.timeout = fastTimeout })
		from, to := c.A, c.B
		if back {
			from, to = c.B, c.A
		}
		c.fault(from, to, Fault{Drop: []uint64{1}})
		a.send(flushOf(1, dst, 0, 64, verbs.FlushGlobal, verbs.FlushRange), writeOf(2, dst, 0, src.all()))
		a.sent(a.scq.one(), 1, verbs.WCFlush)
		a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
		a.scq.none("each request completes once")
	}
}
