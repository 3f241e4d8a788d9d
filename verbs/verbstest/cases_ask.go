package verbstest

import (
	"github.com/verbena-rdma/verbena/verbs"
)

// askCases are about properties of a queue pair other than its attributes. A device may support
// none.
var askCases = []Spec{
	{Name: "newer_calls_answer_or_say_that_they_cannot", Rule: "contract: ErrNotSupported", run: askAll},
	{Name: "data_in_order_promises_blocks_with_the_whole", Rule: "ibv_query_qp_data_in_order(3)", run: askOrder},
	{Name: "ece_is_set_before_init_and_read_again", Rule: "ibv_query_ece(3), ibv_set_ece(3)", needs: sendOnly, run: askECE},
	{Name: "ece_of_another_vendor_is_refused", Rule: "ibv_set_ece(3): EINVAL", run: askForeignECE},
}

func askAll(c *Case) {
	before := c.A.ctx.Objects()
	q := c.A.newQP(c.defaults(), psnA)
	fine := func(err error, what string, also ...error) {
		c.t.Helper()
		if err != nil {
			c.refused(err, what, append(also, verbs.ErrNotSupported)...)
		}
	}
	td, err := c.A.ctx.AllocTD()
	fine(err, "alloc_td")
	if err == nil {
		c.must(td.Close(), "dealloc_td")
	}
	pd, err := c.A.pd.AllocParentDomain(nil)
	fine(err, "alloc_parent_domain")
	if err == nil {
		c.must(pd.Close(), "dealloc_pd")
	}
	mr, err := c.A.pd.RegImplicit(verbs.AccessLocalWrite)
	fine(err, "an implicit region")
	if err == nil {
		c.must(mr.Close(), "dereg_mr")
	}
	_, err = q.DataInOrder(verbs.WRRDMAWrite)
	fine(err, "query_qp_data_in_order")
	ece, err := q.QueryECE()
	fine(err, "query_ece")
	_, err = q.SetECE(ece)
	fine(err, "set_ece")
	c.must(q.Close(), "destroy_qp")
	// The case closes its completion queues.
	if got := c.A.ctx.Objects(); got.QP != before.QP || got.TD != before.TD || got.PD != before.PD || got.MR != before.MR {
		c.failf("the context counts %v, before the calls %v", got, before)
	}
}

func askOrder(c *Case) {
	q := c.A.newQP(c.defaults(), psnA)
	for op := verbs.WRRDMAWrite; op <= verbs.WRAtomicWrite; op++ {
		o, err := q.DataInOrder(op)
		c.without(err, "answer about the order of data")
		c.must(err, "query_qp_data_in_order of %v", op)
		if o&verbs.DataInOrder != 0 && o&verbs.DataInOrder128 == 0 || o&^(verbs.DataInOrder|verbs.DataInOrder128) != 0 {
			c.failf("the order of %v is %v", op, o)
		}
	}
}

func askECE(c *Case) {
	a, b := c.A.newQP(c.defaults(), psnA), c.B.newQP(c.defaults(), psnB)
	ours, err := a.QueryECE()
	c.without(err, "enhanced connection establishment")
	c.must(err, "query_ece")
	theirs, err := b.QueryECE()
	c.must(err, "query_ece of the peer")
	if ours.Vendor == 0 || ours.Vendor != theirs.Vendor {
		c.failf("two devices of a kind are of the vendors 0x%x and 0x%x", ours.Vendor, theirs.Vendor)
	}
	want := verbs.ECE{Vendor: ours.Vendor, Options: ours.Options & theirs.Options}
	for _, q := range []*QP{a, b} {
		got, err := q.SetECE(want)
		c.must(err, "set_ece")
		if got.Vendor != want.Vendor || got.Options&^want.Options != 0 {
			c.failf("asked for %+v, %+v is used", want, got)
		}
	}
	c.connect(a, b)
	src, in := c.A.region(64).fill(1), c.B.region(64)
	b.recv(RR{id: 1, sg: sg(in.all())})
	a.send(sendOf(1, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 1, verbs.WCRecv, 64)
	c.same(in.bytes(), src.bytes(), "a message")
}

func askForeignECE(c *Case) {
	q := c.A.newQP(c.defaults(), psnA)
	ece, err := q.QueryECE()
	c.without(err, "enhanced connection establishment")
	c.must(err, "query_ece")
	ece.Vendor ^= 0x5a5a
	_, err = q.SetECE(ece)
	c.refused(err, "set_ece with another vendor", verbs.ErrInvalid)
	_, err = q.SetECE(verbs.ECE{})
	c.refused(err, "set_ece without a vendor", verbs.ErrNotSupported, verbs.ErrInvalid)
}
