package verbstest

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// windowCases returns the cases that hold for both types of windows.
func windowCases(t verbs.MWType, need needs) []Spec {
	p := fmt.Sprintf("mw%d_", t)
	with := func(ops ...verbs.WROpcode) needs { n := need; n.ops |= verbs.Opcodes(ops...); n.rdAtom = 1; return n }
	f := func(run func(*Case, verbs.MWType)) func(*Case) { return func(c *Case) { run(c, t) } }
	return []Spec{
		{Name: p + "is_counted_and_keeps_its_domain", Rule: "ibv_alloc_mw(3); contract: Object.Close", needs: need, run: f(mwCounted)},
		{Name: p + "bound_lets_a_peer_write", Rule: "ibv_bind_mw(3), ibv_wr_bind_mw(3); IBTA 10.6.7.2", needs: need, run: f(mwWrites)},
		{Name: p + "reads_and_adds_as_allowed", Rule: "IBTA 10.6.7.2.2", needs: with(verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd), run: f(mwReads)},
		{Name: p + "ends_where_it_was_bound_to", Rule: "IBTA 10.6.7.2.2: bounds", needs: need, run: f(mwBounds)},
		{Name: p + "permits_no_more_than_it_was_bound_with", Rule: "IBTA 10.6.7.2.2; rxe rxe_lookup_mw", needs: with(verbs.WRRDMARead), run: f(mwPermits)},
		{Name: p + "cannot_be_bound_without_bind_access", Rule: "IBTA C10-73; rxe rxe_check_bind_mw", needs: need, run: f(mwNoBind)},
		{Name: p + "cannot_be_bound_outside_its_region", Rule: "IBTA C10-75; rxe rxe_check_bind_mw", needs: need, run: f(mwOutside)},
		{Name: p + "cannot_give_writing_without_local_write", Rule: "semantics 37; IBTA C10-74; rxe rxe_check_bind_mw", needs: need, run: f(mwNoLocalWrite)},
		{Name: p + "cannot_be_bound_to_a_region_of_another_domain", Rule: "IBTA C10-72", needs: need, run: f(mwOtherPD)},
		{Name: p + "key_before_the_binding_opens_nothing", Rule: "IBTA 10.6.7.2; rxe rxe_lookup_mw: length 0", needs: need, run: f(mwUnbound)},
		{Name: p + "keeps_its_region", Rule: "ibv_dereg_mr(3): EBUSY with windows bound; IBTA 10.6.7.2.4", needs: need, run: f(mwKeepsRegion)},
		{Name: p + "closed_takes_its_key_away", Rule: "ibv_dealloc_mw(3); IBTA 10.6.7.3", needs: need, run: f(mwClosed)},
		{Name: p + "is_bound_before_what_is_posted_behind", Rule: "IBTA 10.8.3.3: ordering of BIND", needs: need, run: f(mwOrder)},
		{Name: p + "bound_unsignaled_is_silent", Rule: "semantics 30; ibv_post_send(3)", needs: need, run: f(mwSilent)},
		{Name: p + "failed_binding_flushes_what_is_behind", Rule: "semantics 34; IBTA 10.8.2.1: MW_BIND_ERR", needs: need, run: f(mwFlushes)},
	}
}

var mwCases = windowCases(verbs.MWType1, mw1Only)

func mwCounted(c *Case, t verbs.MWType) {
	before := c.A.ctx.Objects()
	pd := c.A.newPD()
	w, err := pd.AllocMW(t)
	c.must(err, "alloc_mw")
	c.defers(w.Close)
	if got := c.A.ctx.Objects(); got.MW != before.MW+1 || w.Type() != t {
		c.failf("after alloc_mw of type %d (it says %d) the context counts %v, before it %v", t, w.Type(), got, before)
	}
	c.refused(pd.Close(), "closing a domain with a window", verbs.ErrBusy)
	c.must(w.Close(), "dealloc_mw")
	c.must(w.Close(), "dealloc_mw again")
	c.must(pd.Close(), "closing the domain after its window")
	_, err = c.A.pd.AllocMW(3)
	c.refused(err, "alloc_mw of type 3")
}

func mwWrites(c *Case, t verbs.MWType) {
	a, b, _, r, key := c.windowed(t, 64, 512, mwWrite)
	src := c.A.region(512).fill(1)
	a.reaches(r, 64, key, src)
	c.untouched(r.bytes()[:64], "the region before the window")
	c.untouched(r.bytes()[576:], "the region behind the window")
	b.scq.none("binding completed once")
}

func mwReads(c *Case, t verbs.MWType) {
	a, _, _, r, key := c.windowed(t, 0, 512, mwAll|verbs.AccessRemoteAtomic)
	dst, res := c.A.region(512), c.A.region(8)
	r.fill(5)
	a.send(readOf(1, r, 0, dst.all()).key(key))
	a.sent(a.scq.one(), 1, verbs.WCRDMARead)
	c.same(dst.bytes(), r.bytes()[:512], "a READ through a window")
	*r.word(8) = 40
	a.send(addOf(2, r, 8, 2, res.all()).key(key))
	a.sent(a.scq.one(), 2, verbs.WCFetchAdd)
	if *r.word(8) != 42 || *res.word(0) != 40 {
		c.failf("40 plus 2 through a window is %d, it was %d", *r.word(8), *res.word(0))
	}
}

func mwBounds(c *Case, t verbs.MWType) {
	for _, x := range []struct{ off, n int }{{63, 64}, {513, 64}, {576, 1}, {0, 4096}} {
		a, _, _, r, key := c.windowed(t, 64, 512, mwWrite)
		a.isRefused(writeOf(1, r, x.off, c.A.region(x.n).all()).key(key), fmt.Sprintf("a WRITE of %d bytes at %d through a window of 512 bytes at 64", x.n, x.off))
		c.untouched(r.bytes(), "the region of the window")
	}
}

func mwPermits(c *Case, t verbs.MWType) {
	a, _, _, r, key := c.windowed(t, 0, 512, mwRead)
	local := c.A.region(64)
	a.isRefused(writeOf(1, r, 0, local.all()).key(key), "a WRITE through a window for reading")
	c.untouched(r.bytes(), "the region of a window for reading")
	a, _, _, r, key = c.windowed(t, 0, 512, mwWrite)
	a.isRefused(readOf(1, r, 0, local.poison().all()).key(key), "a READ through a window for writing")
	c.untouched(local.bytes(), "the buffer of the READ")
}

// bindFails posts a binding that must fail.
func (c *Case) bindFails(what string, w verbs.MW, r SR) {
	c.t.Helper()
	_, b := c.link()
	key := w.RKey()
	b.failsSomehow(what, r, verbs.WCMWBindErr)
	if w.RKey() != key {
		c.failf("%s failed and changed the key of the window from %#x to %#x", what, key, w.RKey())
	}
}

func mwNoBind(c *Case, t verbs.MWType) {
	w, r := c.B.mw(t), c.B.region(512)
	c.bindFails("binding to a region without MW_BIND", w, bindOf(1, w, r, 0, 512, mwRead))
}

func mwOutside(c *Case, t verbs.MWType) {
	for _, x := range []struct{ off, n int }{{-1, 64}, {4033, 64}, {4096, 8}, {0, 4097}} {
		w, r := c.B.mw(t), c.B.target(4096)
		c.bindFails(fmt.Sprintf("binding %d bytes at %d of 4096", x.n, x.off), w, bindOf(1, w, r, x.off, x.n, mwWrite))
	}
	w, r := c.B.mw(t), c.B.target(4096)
	req := bindOf(1, w, r, 8, 8, mwWrite)
	req.bind.length = ^uint64(0) - 4
	c.bindFails("binding a range that wraps around", w, req)
}

func mwNoLocalWrite(c *Case, t verbs.MWType) {
	for _, access := range []verbs.AccessFlags{mwWrite, verbs.AccessRemoteAtomic} {
		w, r := c.B.mw(t), c.B.regionOf(c.B.pd, 512, verbs.AccessMWBind|verbs.AccessRemoteRead, 0)
		c.bindFails(fmt.Sprintf("a window with %v on a region without LOCAL_WRITE", access), w, bindOf(1, w, r, 0, 512, access))
	}
}

func mwOtherPD(c *Case, t verbs.MWType) {
	w, r := c.B.mw(t), c.B.regionOf(c.B.newPD(), 512, bindable, 0)
	c.bindFails("binding to a region of another domain", w, bindOf(1, w, r, 0, 512, mwWrite))
}

func mwUnbound(c *Case, t verbs.MWType) {
	a, _ := c.link()
	w, r := c.B.mw(t), c.B.target(64)
	a.isRefused(writeOf(1, r, 0, c.A.region(8).all()).key(w.RKey()), "a WRITE through a window that was never bound")
	c.untouched(r.bytes(), "a region that no window was bound to")
}

func mwKeepsRegion(c *Case, t verbs.MWType) {
	_, _, w, r, _ := c.windowed(t, 0, 512, mwWrite)
	c.refused(r.mr.Close(), "dereg_mr of a region with a window", verbs.ErrBusy)
	c.must(w.Close(), "dealloc_mw")
	r.dereg()
}

func mwClosed(c *Case, t verbs.MWType) {
	a, _, w, r, key := c.windowed(t, 0, 512, mwWrite)
	src := c.A.region(8).fill(1)
	a.reaches(r, 0, key, src)
	r.poison()
	c.must(w.Close(), "dealloc_mw of a bound window")
	a.isRefused(writeOf(2, r, 0, src.all()).key(key), "a WRITE through a window that was closed")
	c.untouched(r.bytes(), "the region of a window that was closed")
}

// B binds and notifies A in one list: when A gets the message, the window is bound.
func mwOrder(c *Case, t verbs.MWType) {
	a, b := c.link()
	w, r := c.B.mw(t), c.B.target(512)
	src, note := c.A.region(8).fill(1), c.A.region(8)
	a.recv(RR{id: 9, sg: sg(note.all())})
	req := bindOf(1, w, r, 0, 512, mwWrite)
	b.send(req, sendOf(2, c.B.region(8).all()))
	a.received(a.rcq.one(), 9, verbs.WCRecv, 8)
	a.reaches(r, 0, req.rkey, src)
	b.sent(b.scq.one(), 1, verbs.WCBindMW)
	b.sent(b.scq.one(), 2, verbs.WCSend)
}

func mwSilent(c *Case, t verbs.MWType) {
	a, b := c.link()
	w, r := c.B.mw(t), c.B.target(512)
	req := bindOf(1, w, r, 0, 512, mwWrite).with(0)
	b.send(req)
	b.scq.none("the binding was not signaled")
	a.reaches(r, 0, req.rkey, c.A.region(8).fill(1))
}

func mwFlushes(c *Case, t verbs.MWType) {
	_, b := c.link()
	w, r := c.B.mw(t), c.B.region(512) // without MW_BIND
	n, err := b.trySend(bindOf(1, w, r, 0, 512, mwWrite), sendOf(2), sendOf(3))
	if err != nil {
		if n != 0 {
			c.failf("a list that is bad at 0 was accepted up to %d", n)
		}
		return // refused at once: that is bad_wr, not a completion
	}
	b.failed(b.scq.one(), 1, verbs.WCMWBindErr)
	b.flushed(b.scq, 2, 3)
	b.untilState(verbs.QPSErr)
}
