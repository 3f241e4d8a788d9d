package verbstest

import (
	"errors"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

var objectCases = []Spec{
	{Name: "objects_are_counted_exactly", Rule: "contract: Context.Objects", run: objectsAreCounted},
	{Name: "parent_with_children_answers_busy", Rule: "contract: Object.Close; ibv_dealloc_pd(3) EBUSY", run: parentsAreBusy},
	{Name: "close_is_idempotent", Rule: "contract: Object.Close", run: closeIsIdempotent},
	{Name: "unknown_device_is_named_with_the_known", Rule: "contract: Provider.Open", run: unknownDevice},
	{Name: "query_beyond_the_tables_is_refused", Rule: "ibv_query_port(3), ibv_query_gid(3)", run: queriesAreBounded},
	{Name: "create_qp_grants_at_least_what_was_asked", Rule: "ibv_create_qp(3)", run: grantsEnough},
	{Name: "create_qp_beyond_the_limits_is_refused", Rule: "ibv_create_qp(3): ENOMEM, EINVAL", run: limitsRefused},
	{Name: "create_cq_bounds_its_entries", Rule: "ibv_create_cq(3)", run: cqEntries},
	{Name: "reg_mr_refuses_remote_without_local_write", Rule: "semantics 37; ibv_reg_mr(3)", run: regMRAccess},
	{Name: "reg_mr_refuses_memory_that_is_not_there", Rule: "semantics 44; contract: PD.RegMR", run: regMRMemory},
	{Name: "absent_queue_pair_types_are_refused", Rule: "contract: ErrNotSupported", run: absentTypes},
}

func objectsAreCounted(c *Case) {
	before := c.A.ctx.Objects()
	ch := c.A.channel()
	cq := c.A.cq(4, ch)
	r := c.A.region(64)
	o := c.defaults()
	o.scq, o.rcq = cq, cq
	qp := c.A.newQP(o, psnA)
	want := before
	want.CompChannel++
	want.CQ++
	want.MR++
	want.QP++
	if got := c.A.ctx.Objects(); got != want {
		c.failf("after making a channel, a CQ, an MR and a QP the context counts %v, want %v", got, want)
	}
	c.must(qp.Close(), "destroy_qp")
	c.must(r.close(), "dereg_mr")
	want.QP--
	want.MR--
	if got := c.A.ctx.Objects(); got != want {
		c.failf("after closing the QP and the MR the context counts %v, want %v", got, want)
	}
}

// A second context of the same device, so that closing it affects no other case.
func parentsAreBusy(c *Case) {
	ctx, err := c.A.ep.Provider.Open(c.A.ctx.Device().Name)
	c.must(err, "opening the device again")
	c.defers(ctx.Close)
	pd, err := ctx.AllocPD()
	c.must(err, "alloc_pd")
	c.defers(pd.Close)
	ch, err := ctx.CreateCompChannel()
	c.must(err, "create_comp_channel")
	c.defers(ch.Close)
	cq, err := ctx.CreateCQ(4, ch, 0, 0)
	c.must(err, "create_cq")
	c.defers(cq.Close)
	qp, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	c.must(err, "create_qp")
	c.defers(qp.Close)
	c.refused(ctx.Close(), "closing a context with a PD", verbs.ErrBusy)
	c.refused(pd.Close(), "closing a PD with a QP", verbs.ErrBusy)
	c.refused(ch.Close(), "closing a channel with a CQ", verbs.ErrBusy)
	c.refused(cq.Close(), "closing a CQ with a QP", verbs.ErrBusy)
	c.must(qp.Close(), "closing the QP, which is nobody's parent")
	c.must(cq.Close(), "closing the CQ after its QP")
	c.must(ch.Close(), "closing the channel after its CQ")
	c.must(pd.Close(), "closing the PD after its QP")
	if o := ctx.Objects(); !o.Zero() {
		c.failf("a context whose children are closed counts %v", o)
	}
	c.must(ctx.Close(), "closing the context after all")
}

func closeIsIdempotent(c *Case) {
	ch := c.A.channel()
	cq := c.A.cq(4, ch)
	o := c.defaults()
	o.scq, o.rcq = cq, cq
	qp := c.A.newQP(o, psnA)
	r := c.A.region(64)
	pd := c.A.newPD()
	for _, obj := range []verbs.Object{qp.QP, r.mr, cq.CQ, ch, pd} {
		c.must(obj.Close(), "the first Close of %v", obj)
		before := c.A.ctx.Objects()
		c.must(obj.Close(), "the second Close of %v", obj)
		if got := c.A.ctx.Objects(); got != before {
			c.failf("a second Close of %v changed the counts from %v to %v", obj, before, got)
		}
	}
	r.shut = true
}

func unknownDevice(c *Case) {
	const name = "no-such-device"
	_, err := c.A.ep.Provider.Open(name)
	c.refused(err, "opening an unknown device", verbs.ErrUnknownDevice)
	var de *verbs.DeviceError
	if !errors.As(err, &de) || de.Name != name || !slices.Contains(de.Known, c.A.ctx.Device().Name) {
		c.failf("the error %q does not name the device asked for and the known ones", err)
	}
}

func queriesAreBounded(c *Case) {
	d, err := c.A.ctx.QueryDevice()
	c.must(err, "query_device")
	for _, port := range []uint8{0, uint8(d.PhysPorts) + 1, 255} {
		_, err := c.A.ctx.QueryPort(port)
		c.refused(err, "query_port of a port that is not there")
		_, err = c.A.ctx.QueryGID(port, 0)
		c.refused(err, "query_gid of a port that is not there")
	}
	p, err := c.A.ctx.QueryPort(c.A.ep.Port)
	c.must(err, "query_port")
	for _, i := range []int{-1, p.GIDTblLen, 1 << 20} {
		_, err := c.A.ctx.QueryGID(c.A.ep.Port, i)
		c.refused(err, "query_gid behind the table")
	}
}

func grantsEnough(c *Case) {
	o := c.defaults()
	o.sends, o.recvs, o.sges, o.inline = 7, 5, min(3, c.pair.Caps.MaxSGE), min(33, c.pair.Caps.MaxInline)
	q := c.A.newQP(o, psnA)
	if q.cap.MaxSendWR < 7 || q.cap.MaxRecvWR < 5 || q.cap.MaxSendSGE < uint32(o.sges) ||
		q.cap.MaxRecvSGE < uint32(o.sges) || q.cap.MaxInlineData < uint32(o.inline) {
		c.failf("asked for %+v, granted %+v", o, q.cap)
	}
	got, err := q.Query()
	c.must(err, "query_qp")
	if got.Cap != q.cap {
		c.failf("create_qp wrote back %+v, query_qp reads %+v", q.cap, got.Cap)
	}
	if q.Type() != verbs.QPTRC || q.Context() != c.A.ctx || q.Num() == 0 || q.Num() > maxPSN {
		c.failf("a new queue pair is %v number %#x of %v", q.Type(), q.Num(), q.Context())
	}
}

func limitsRefused(c *Case) {
	d, err := c.A.ctx.QueryDevice()
	c.must(err, "query_device")
	cq := c.A.cq(4, nil)
	ok := verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	try := func(what string, mod func(*verbs.QPInitAttr)) {
		init := &verbs.QPInitAttr{SendCQ: cq.CQ, RecvCQ: cq.CQ, Type: verbs.QPTRC, Cap: ok}
		mod(init)
		qp, err := c.A.pd.CreateQP(init)
		if err == nil {
			c.defers(qp.Close)
		}
		c.refused(err, "create_qp "+what)
	}
	try("with more sends than the device has", func(i *verbs.QPInitAttr) { i.Cap.MaxSendWR = uint32(d.MaxQPWR) + 1 })
	try("with more receives than the device has", func(i *verbs.QPInitAttr) { i.Cap.MaxRecvWR = uint32(d.MaxQPWR) + 1 })
	try("with more send elements than the device has", func(i *verbs.QPInitAttr) { i.Cap.MaxSendSGE = uint32(d.MaxSGE) + 1 })
	try("with more receive elements than the device has", func(i *verbs.QPInitAttr) { i.Cap.MaxRecvSGE = uint32(d.MaxSGE) + 1 })
	try("with huge inline data", func(i *verbs.QPInitAttr) { i.Cap.MaxInlineData = 1 << 28 })
	try("with 2^32-1 sends", func(i *verbs.QPInitAttr) { i.Cap.MaxSendWR = ^uint32(0) })
	try("without a send queue", func(i *verbs.QPInitAttr) { i.SendCQ = nil })
	try("without a receive queue", func(i *verbs.QPInitAttr) { i.RecvCQ = nil })
	try("of no type", func(i *verbs.QPInitAttr) { i.Type = 77 })
}

func cqEntries(c *Case) {
	d, err := c.A.ctx.QueryDevice()
	c.must(err, "query_device")
	for _, n := range []int{1, 3, 100, 1000} {
		if n > d.MaxCQE {
			break
		}
		if q := c.A.cq(n, nil); q.Capacity() < n {
			c.failf("a queue of %d entries was asked for, it has %d", n, q.Capacity())
		}
	}
	for _, n := range []int{-1, 0, d.MaxCQE + 1} {
		cq, err := c.A.ctx.CreateCQ(n, nil, 0, 0)
		if err == nil {
			c.defers(cq.Close)
		}
		c.refused(err, "create_cq with impossible entries")
	}
	cq, err := c.A.ctx.CreateCQ(1, nil, d.CompVectors, 0)
	if err == nil {
		c.defers(cq.Close)
	}
	c.refused(err, "create_cq on a vector that is not there")
}

func regMRAccess(c *Case) {
	a, err := mem.Map(4096, mem.Options{})
	c.must(err, "mapping")
	c.defers(a.Unmap)
	for _, acc := range []verbs.AccessFlags{verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, verbs.AccessRemoteWrite | verbs.AccessRemoteRead} {
		mr, err := c.A.pd.RegMR(a.Addr(), 4096, a.Addr(), acc)
		if err == nil {
			c.defers(mr.Close)
		}
		c.refused(err, "reg_mr with "+acc.String(), verbs.ErrInvalid, syscall.EINVAL)
	}
	mr, err := c.A.pd.RegMR(a.Addr(), 4096, a.Addr(), 0)
	c.must(err, "reg_mr with no access at all, which reads locally")
	c.must(mr.Close(), "dereg_mr")
}

func regMRMemory(c *Case) {
	a, err := mem.Map(4096, mem.Options{})
	c.must(err, "mapping")
	at := a.Addr()
	try := func(what string, addr, n uint64) {
		mr, err := c.A.pd.RegMR(addr, n, addr, fullAccess)
		if err == nil {
			c.defers(mr.Close)
		}
		c.refused(err, "reg_mr of "+what)
	}
	try("a range that wraps around", at, ^uint64(0)-8)
	try("address 0", 0, 4096)
	c.must(a.Unmap(), "unmapping")
	try("memory that was unmapped", at, 4096)
}

func absentTypes(c *Case) {
	d, err := c.A.ctx.QueryDevice()
	c.must(err, "query_device")
	cq := c.A.cq(4, nil)
	for _, t := range []verbs.QPType{verbs.QPTUC, verbs.QPTUD, verbs.QPTRawPacket, verbs.QPTXRCSend, verbs.QPTXRCRecv, verbs.QPTDriver} {
		if slices.Contains(d.QPTypes, t) {
			continue
		}
		qp, err := c.A.pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq.CQ, RecvCQ: cq.CQ, Type: t, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		if err == nil {
			c.defers(qp.Close)
		}
		c.refused(err, "create_qp of type "+t.String()+", which query_device does not list", verbs.ErrNotSupported)
	}
}
