package verbstest

import (
	"errors"
	"math"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

var (
	odpOnly     = needs{odp: verbs.ODPSupport}
	odpRC       = needs{odp: verbs.ODPSupport, odpRC: verbs.ODPSend | verbs.ODPRecv | verbs.ODPWrite | verbs.ODPRead, ops: sendWrite.ops | readOnly.ops, rdAtom: 1}
	odpImplicit = needs{odp: verbs.ODPSupport | verbs.ODPImplicit, odpRC: verbs.ODPSend | verbs.ODPRecv, ops: sendOnly.ops}
)

var odpCases = []Spec{
	{Name: "on_demand_is_what_the_device_says", Rule: "ibv_query_device_ex(3): odp_caps; contract: ErrNotSupported", run: odpSays},
	{Name: "on_demand_region_takes_send_write_and_read", Rule: "ibv_reg_mr(3): IBV_ACCESS_ON_DEMAND", needs: odpRC, run: odpOps},
	{Name: "on_demand_region_takes_atomics", Rule: "ibv_reg_mr(3): IBV_ACCESS_ON_DEMAND", needs: odpOnly.with(func(n *needs) { n.odpRC, n.ops, n.rdAtom = verbs.ODPAtomic, atomicOnly.ops, 1 }), run: odpAtomic},
	{Name: "on_demand_region_ends_where_it_ends", Rule: "IBTA 9.7.4.1.5: range", needs: odpRC, run: odpBounds},
	{Name: "on_demand_region_may_be_written_only_as_allowed", Rule: "semantics 37; IBTA 10.6.3.1", needs: odpRC, run: odpAccess},
	{Name: "advice_is_taken_and_changes_nothing", Rule: "ibv_advise_mr(3)", needs: odpRC, run: adviceTaken},
	{Name: "advice_on_what_is_not_on_demand_is_refused", Rule: "ibv_advise_mr(3): ENOENT, EPERM, EFAULT", needs: odpOnly, run: adviceRefused},
	{Name: "advice_that_does_not_exist_is_refused", Rule: "ibv_advise_mr(3): EOPNOTSUPP, EINVAL", run: adviceUnknown},
	{Name: "implicit_region_serves_any_address", Rule: "ibv_reg_mr(3): implicit ODP MR", needs: odpImplicit, run: implicitServes},
	{Name: "implicit_region_is_not_for_peers", Rule: "contract: PD.RegImplicit", needs: odpImplicit, run: implicitPeers},
}

const onDemand = fullAccess | verbs.AccessOnDemand

// demand returns on-demand registered memory.
func (e *End) demand(n int) *Region {
	e.c.t.Helper()
	return e.regionOf(e.pd, n, onDemand, 0)
}

func odpSays(c *Case) {
	for _, e := range []*End{c.A, c.B} {
		d, err := e.ctx.QueryDevice()
		c.must(err, "query_device")
		if ops := d.ODP.RC | d.ODP.UC | d.ODP.UD | d.ODP.XRC; !d.ODP.Has() && (d.ODP.General != 0 || ops != 0) {
			c.failf("%s pages nothing on demand, and says %+v of it", e.name, d.ODP)
		}
		before := e.ctx.Objects()
		a, err := mem.Map(targetSize, mem.Options{})
		c.must(err, "mapping memory")
		c.defers(a.Unmap)
		for what, x := range map[string]struct {
			has bool
			reg func() (verbs.MR, error)
		}{
			"a region on demand": {d.ODP.Has(), func() (verbs.MR, error) { return e.pd.RegMR(a.Addr(), targetSize, a.Addr(), onDemand) }},
			"an implicit region": {d.ODP.General&verbs.ODPImplicit != 0, func() (verbs.MR, error) { return e.pd.RegImplicit(verbs.AccessLocalWrite) }},
		} {
			mr, err := x.reg()
			if !x.has {
				c.refused(err, what+" on a device that says it has none", verbs.ErrNotSupported)
				continue
			}
			c.must(err, "%s on a device that says it has them", what)
			c.must(mr.Close(), "dereg_mr of %s", what)
		}
		if got := e.ctx.Objects(); got != before {
			c.failf("the context counts %v, before it %v", got, before)
		}
	}
}

func odpOps(c *Case) {
	a, b := c.link()
	src, dst, got, in := c.A.demand(9000).fill(1), c.B.demand(9000).poison(), c.A.demand(9000), c.B.demand(9000)
	b.recv(RR{id: 9, sg: sg(in.all())})
	a.send(writeOf(1, dst, 0, src.all()), readOf(2, dst, 0, got.all()), sendOf(3, src.all()))
	for i, op := range []verbs.WCOpcode{verbs.WCRDMAWrite, verbs.WCRDMARead, verbs.WCSend} {
		a.sent(a.scq.one(), uint64(i+1), op)
	}
	b.received(b.rcq.one(), 9, verbs.WCRecv, 9000)
	c.same(dst.bytes(), src.bytes(), "a WRITE")
	c.same(got.bytes(), src.bytes(), "a READ of it")
	c.same(in.bytes(), src.bytes(), "a message")
}

func odpAtomic(c *Case) {
	a, _ := c.link()
	at, res := c.B.demand(64), c.A.demand(64)
	*at.word(8) = 40
	a.send(addOf(1, at, 8, 2, res.sge(0, 8)))
	a.sent(a.scq.one(), 1, verbs.WCFetchAdd)
	if *at.word(8) != 42 || *res.word(0) != 40 {
		c.failf("40 plus 2 left %d and returned %d", *at.word(8), *res.word(0))
	}
}

func odpBounds(c *Case) {
	a, b := c.link()
	dst := c.B.demand(targetSize).poison()
	a.send(writeOf(1, dst, targetSize-63, c.A.demand(64).fill(1).all()))
	a.failed(a.scq.one(), 1, verbs.WCRemAccessErr)
	c.untouched(dst.bytes(), "the region")
	c.bothDead(a, b)
}

func odpAccess(c *Case) {
	a, _ := c.link()
	dst := c.B.regionOf(c.B.pd, targetSize, onDemand&^verbs.AccessRemoteWrite, 0).poison()
	a.send(writeOf(1, dst, 0, c.A.demand(64).fill(1).all()))
	a.failed(a.scq.one(), 1, verbs.WCRemAccessErr)
	c.untouched(dst.bytes(), "a region that peers may not write")
}

func adviceTaken(c *Case) {
	a, _ := c.link()
	src, dst := c.A.demand(3*targetSize).fill(1), c.B.demand(3*targetSize).poison()
	for _, advice := range []verbs.Advice{verbs.AdvisePrefetch, verbs.AdvisePrefetchWrite, verbs.AdvisePrefetchNoFault} {
		for _, flags := range []verbs.AdviseFlags{verbs.AdviseFlush, 0} {
			err := c.B.pd.AdviseMR(advice, flags, []verbs.SGE{dst.sge(1, 2*targetSize), dst.sge(2*targetSize, targetSize)})
			if advice == verbs.AdvisePrefetchNoFault && errors.Is(err, verbs.ErrNotSupported) {
				continue // newer than the others
			}
			c.must(err, "advise_mr %v, flags %d", advice, flags)
		}
	}
	c.untouched(dst.bytes(), "memory that an advice was about")
	a.send(writeOf(1, dst, 0, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	c.same(dst.bytes(), src.bytes(), "a WRITE into it")
}

func adviceRefused(c *Case) {
	r := c.A.demand(targetSize)
	readOnly := c.A.regionOf(c.A.pd, targetSize, verbs.AccessOnDemand, 0)
	foreign := c.A.regionOf(c.A.newPD(), targetSize, onDemand, 0)
	closed := c.A.demand(targetSize)
	gone := closed.all()
	closed.dereg()
	for what, x := range map[string]struct {
		a verbs.Advice
		s verbs.SGE
	}{
		"memory that is locked":              {verbs.AdvisePrefetch, c.A.region(targetSize).all()},
		"a key that does not exist":          {verbs.AdvisePrefetch, verbs.SGE{Addr: r.at(0), Length: 1, LKey: r.mr.LKey() ^ 0x00c0ffee}},
		"a region that is gone":              {verbs.AdvisePrefetch, gone},
		"one byte behind the region":         {verbs.AdvisePrefetch, verbs.SGE{Addr: r.at(1), Length: targetSize, LKey: r.mr.LKey()}},
		"one byte before the region":         {verbs.AdvisePrefetch, verbs.SGE{Addr: r.at(-1), Length: 2, LKey: r.mr.LKey()}},
		"writing what may not be written":    {verbs.AdvisePrefetchWrite, readOnly.all()},
		"a region of another domain":         {verbs.AdvisePrefetch, foreign.all()},
		"addresses that wrap around the end": {verbs.AdvisePrefetch, verbs.SGE{Addr: math.MaxUint64, Length: 2, LKey: r.mr.LKey()}},
	} {
		c.refused(c.A.pd.AdviseMR(x.a, verbs.AdviseFlush, []verbs.SGE{r.all(), x.s}), "an advice on "+what, verbs.ErrInvalid)
	}
	c.must(c.A.pd.AdviseMR(verbs.AdvisePrefetch, verbs.AdviseFlush, []verbs.SGE{readOnly.all()}), "an advice to read what may be read")
}

func adviceUnknown(c *Case) {
	r := c.A.region(64)
	c.refused(c.A.pd.AdviseMR(99, verbs.AdviseFlush, []verbs.SGE{r.all()}), "an advice that does not exist", verbs.ErrNotSupported, verbs.ErrInvalid)
	c.refused(c.A.pd.AdviseMR(verbs.AdvisePrefetch, 1<<7, []verbs.SGE{r.all()}), "a flag that does not exist", verbs.ErrNotSupported, verbs.ErrInvalid)
	c.refused(c.A.pd.AdviseMR(verbs.AdvisePrefetch, verbs.AdviseFlush, nil), "an advice on nothing", verbs.ErrNotSupported, verbs.ErrInvalid)
	c.refused(c.A.pd.AdviseMR(verbs.AdvisePrefetch, verbs.AdviseFlush, []verbs.SGE{r.all()}), "an advice on memory that is locked", verbs.ErrNotSupported, verbs.ErrInvalid)
}

func implicitServes(c *Case) {
	a, b := c.link()
	whole := func(e *End) verbs.MR {
		mr, err := e.pd.RegImplicit(verbs.AccessLocalWrite)
		c.must(err, "an implicit region")
		c.defers(mr.Close)
		return mr
	}
	wa, wb := whole(c.A), whole(c.B)
	if wa.Addr() != 0 || wa.IOVA() != 0 || wa.Length() != math.MaxUint64 {
		c.failf("an implicit region has %d bytes at 0x%x, named from 0x%x", wa.Length(), wa.Addr(), wa.IOVA())
	}
	for i := range 3 { // memory that was mapped after the registration
		src, dst := c.A.region(5000).fill(i), c.B.region(5000).poison()
		b.recv(RR{id: uint64(i), sg: sg(verbs.SGE{Addr: dst.arena.Addr(), Length: 5000, LKey: wb.LKey()})})
		a.send(sendOf(uint64(i), verbs.SGE{Addr: src.arena.Addr(), Length: 5000, LKey: wa.LKey()}))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		b.received(b.rcq.one(), uint64(i), verbs.WCRecv, 5000)
		c.same(dst.bytes(), src.bytes(), "a message by the key of an implicit region")
	}
	c.must(c.A.pd.AdviseMR(verbs.AdvisePrefetch, verbs.AdviseFlush, []verbs.SGE{{Addr: c.A.scratch.Arena().Addr(), Length: 4096, LKey: wa.LKey()}}), "an advice on a part of an implicit region")
}

func implicitPeers(c *Case) {
	for _, x := range []verbs.AccessFlags{verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic, verbs.AccessMWBind} {
		_, err := c.A.pd.RegImplicit(verbs.AccessLocalWrite | x)
		c.refused(err, "an implicit region with "+x.String(), verbs.ErrInvalid)
	}
}
