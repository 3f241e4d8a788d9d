package verbstest

import (
	"errors"

	"github.com/verbena-rdma/verbena/verbs"
)

// tdCases determine themselves whether there are thread domains: no query reports it.
var tdCases = []Spec{
	{Name: "td_is_counted_and_lives_as_long_as_its_parent_domain", Rule: "ibv_alloc_td(3); contract: Object.Close", run: tdCounted},
	{Name: "parent_domain_keeps_its_domain", Rule: "ibv_alloc_parent_domain(3): EBUSY", run: parentKeeps},
	{Name: "parent_domain_shares_the_keys_of_its_domain", Rule: "ibv_alloc_parent_domain(3): interchangeable", needs: needs{ops: sendWrite.ops | readOnly.ops, rdAtom: 1}, run: parentShares},
	{Name: "parent_domain_protects_as_its_domain_does", Rule: "IBTA 10.2.3; ibv_alloc_parent_domain(3)", needs: writeOnly, run: parentProtects},
	{Name: "parent_domain_binds_windows", Rule: "ibv_alloc_parent_domain(3); IBTA 10.6.7.2", needs: mw2Only, run: parentBinds},
	{Name: "parent_domain_takes_datagrams", Rule: "ibv_alloc_parent_domain(3)", needs: udOnly, run: parentUD},
	{Name: "parent_domain_may_be_without_a_thread_domain", Rule: "ibv_alloc_parent_domain(3): td may be NULL", needs: sendOnly, run: parentPlain},
	{Name: "td_of_another_context_is_refused", Rule: "contract: PD.AllocParentDomain", run: tdForeign},
}

// own makes a thread domain and a parent domain with it; the case is not applicable where there
// are none.
func (e *End) own() (verbs.TD, verbs.PD) {
	e.c.t.Helper()
	td, err := e.ctx.AllocTD()
	e.c.without(err, "thread domains")
	e.c.must(err, "alloc_td")
	e.c.defers(td.Close)
	pd, err := e.pd.AllocParentDomain(td)
	e.c.without(err, "thread domains")
	e.c.must(err, "alloc_parent_domain")
	e.c.defers(pd.Close)
	return td, pd
}

// without ends the case as not applicable if err means that the feature is missing.
func (c *Case) without(err error, what string) {
	c.t.Helper()
	if errors.Is(err, verbs.ErrNotSupported) {
		c.skipped = "no " + what
		c.t.Skipf("not applicable: %v", err)
	}
}

// ownLink connects queue pairs of thread domains of their own.
func (c *Case) ownLink() (a, b *QP, pa, pb verbs.PD) {
	c.t.Helper()
	_, pa = c.A.own()
	_, pb = c.B.own()
	of := func(pd verbs.PD) opts { o := c.defaults(); o.pd = pd; return o }
	a, b = c.A.newQP(of(pa), psnA), c.B.newQP(of(pb), psnB)
	c.connect(a, b)
	return a, b, pa, pb
}

func tdCounted(c *Case) {
	before := c.A.ctx.Objects()
	td, pd := c.A.own()
	want := before
	want.TD++
	want.PD++
	if got := c.A.ctx.Objects(); got != want {
		c.failf("after alloc_td and alloc_parent_domain the context counts %v, want %v", got, want)
	}
	if td.Context() != c.A.ctx || pd.Context() != c.A.ctx {
		c.failf("the thread domain or its parent domain is of another context")
	}
	c.refused(td.Close(), "closing a thread domain with a parent domain", verbs.ErrBusy)
	c.must(pd.Close(), "closing the parent domain")
	c.must(td.Close(), "closing the thread domain after it")
	c.must(td.Close(), "closing it again")
	if got := c.A.ctx.Objects(); got != before {
		c.failf("after closing both the context counts %v, want %v", got, before)
	}
}

func parentKeeps(c *Case) {
	td, err := c.A.ctx.AllocTD()
	c.without(err, "thread domains")
	c.must(err, "alloc_td")
	c.defers(td.Close)
	base := c.A.newPD()
	pd, err := base.AllocParentDomain(td)
	c.must(err, "alloc_parent_domain")
	c.defers(pd.Close)
	c.refused(base.Close(), "closing a domain with a parent domain", verbs.ErrBusy)
	r := c.A.regionOf(pd, 64, fullAccess, 0)
	c.refused(pd.Close(), "closing a parent domain with a region", verbs.ErrBusy)
	r.dereg()
	c.must(pd.Close(), "closing the parent domain")
	c.must(base.Close(), "closing the domain after it")
}

func parentShares(c *Case) {
	a, b, pa, pb := c.ownLink()
	// Regions of the domain, and of the parent domain, at either end.
	for i, p := range []struct{ a, b verbs.PD }{{c.A.pd, c.B.pd}, {pa, pb}, {c.A.pd, pb}} {
		src, dst := c.A.regionOf(p.a, 9000, fullAccess, 0).fill(i), c.B.regionOf(p.b, 9000, fullAccess, 0).poison()
		got, in := c.A.regionOf(p.a, 9000, fullAccess, 0), c.B.regionOf(p.b, 9000, fullAccess, 0)
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
}

func parentProtects(c *Case) {
	a, b, _, _ := c.ownLink()
	dst := c.B.regionOf(c.B.newPD(), targetSize, fullAccess, 0).poison()
	a.send(writeOf(1, dst, 0, c.A.region(64).fill(1).all()))
	a.failed(a.scq.one(), 1, verbs.WCRemAccessErr)
	c.untouched(dst.bytes(), "a region of another domain")
	c.bothDead(a, b)
}

func parentBinds(c *Case) {
	a, b, _, pb := c.ownLink()
	r := c.B.target(targetSize)
	for _, pd := range []verbs.PD{c.B.pd, pb} {
		w, err := pd.AllocMW(verbs.MWType2)
		c.must(err, "alloc_mw")
		c.first = append(c.first, w.Close)
		key := b.bindTo(w, r, 64, 512, mwWrite)
		a.reaches(r, 64, key, c.A.region(512).fill(1))
	}
}

func parentUD(c *Case) {
	_, pd := c.A.own()
	a, b := c.A.ud(func(o *opts) { o.pd = pd }), c.B.ud()
	own, err := pd.CreateAH(c.A.ahAttr(c.B.gid))
	c.must(err, "create_ah")
	c.defers(own.Close)
	src, in := c.A.region(100).fill(1), c.B.region(grhSize+100)
	for i, ah := range []verbs.AH{c.A.ah(c.B.gid), own} {
		b.recv(RR{id: uint64(i), sg: sg(in.all())})
		a.send(sendOf(uint64(i), src.all()).to(ah, b.Num(), udKey))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		b.received(b.rcq.one(), uint64(i), verbs.WCRecv, grhSize+100)
		c.same(in.bytes()[grhSize:], src.bytes(), "a datagram")
	}
}

func parentPlain(c *Case) {
	pd, err := c.A.pd.AllocParentDomain(nil)
	c.without(err, "thread domains")
	c.must(err, "alloc_parent_domain without a thread domain")
	c.defers(pd.Close)
	o := c.defaults()
	o.pd = pd
	a, b := c.A.newQP(o, psnA), c.B.newQP(c.defaults(), psnB)
	c.connect(a, b)
	src, in := c.A.region(64).fill(1), c.B.region(64)
	b.recv(RR{id: 1, sg: sg(in.all())})
	a.send(sendOf(1, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 1, verbs.WCRecv, 64)
	c.same(in.bytes(), src.bytes(), "a message")
}

func tdForeign(c *Case) {
	ctx, err := c.A.ep.Provider.Open(c.A.ctx.Device().Name)
	c.must(err, "opening the device again")
	c.defers(ctx.Close)
	td, err := ctx.AllocTD()
	if errors.Is(err, verbs.ErrNotSupported) {
		// Then no parent domain can be made either.
		_, err := c.A.pd.AllocParentDomain(nil)
		if err != nil {
			c.refused(err, "alloc_parent_domain", verbs.ErrNotSupported)
		}
		c.without(verbs.ErrNotSupported, "thread domains")
	}
	c.must(err, "alloc_td")
	c.defers(td.Close)
	_, err = c.A.pd.AllocParentDomain(td)
	c.refused(err, "alloc_parent_domain with a thread domain of another context", verbs.ErrInvalid)
}
