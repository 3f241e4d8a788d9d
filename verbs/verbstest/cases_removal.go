package verbstest

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

var removalCases = []Spec{
	{Name: "removal_is_reported_and_ends_every_turn", Rule: "contract: Context.Execute; ib_uverbs: disassociation; DEVICE_FATAL", needs: devicesOnly, run: removalReported},
	{Name: "removal_refuses_what_makes_or_changes", Rule: "contract: ErrDeviceRemoved; ib_uverbs: EIO", needs: devicesOnly, run: removalRefuses},
	{Name: "removal_leaves_objects_that_close_in_order", Rule: "contract: Object.Close", needs: devicesOnly, run: removalCloses},
	{Name: "removal_touches_no_memory_afterwards", Rule: "contract: Context.Execute: the device touches no memory; invariant 3", needs: devicesOnly, run: removalMemory},
	{Name: "removal_is_silence_to_the_peer", Rule: "IBTA 9.9.2.1.1; semantics 34", needs: devicesOnly, run: removalPeer},
	{Name: "removed_device_is_listed_and_opened_no_more", Rule: "ibv_get_device_list(3); contract: Provider.Open", needs: devicesOnly, run: removalListed},
	{Name: "restored_device_works_as_new", Rule: "contract: Provider.Open", needs: devicesOnly, run: removalRestored},
}

func removalReported(c *Case) {
	e, p := c.spare()
	f, _ := c.spare()
	a, _ := c.linkOf(e, c.B)
	src := e.region(8)
	p.remove()
	e.untilEvent(nil, verbs.EventDeviceFatal)
	f.untilEvent(nil, verbs.EventDeviceFatal)
	n, err := a.trySend(sendOf(1, src.all()))
	if n != 0 {
		c.failf("a removed device took a send")
	}
	c.refused(err, "a turn on a removed device", verbs.ErrDeviceRemoved)
	n, err = a.tryRecv(RR{id: 2})
	if n != 0 {
		c.failf("a removed device took a receive")
	}
	c.refused(err, "a turn on a removed device", verbs.ErrDeviceRemoved)
	_, err = verbs.Poll(a.scq.CQ, e.wcBuffer(1))
	c.refused(err, "polling a removed device", verbs.ErrDeviceRemoved)
	c.refused(verbs.Arm(a.scq.CQ, false), "arming on a removed device", verbs.ErrDeviceRemoved)
	c.refused(e.ctx.Execute(&verbs.IOBatch{}), "an empty turn on a removed device", verbs.ErrDeviceRemoved)
	if n := c.B.count(nil, verbs.EventDeviceFatal); n != 0 {
		c.failf("DEVICE_FATAL came to another device")
	}
}

func removalRefuses(c *Case) {
	e, p := c.spare()
	q := e.newQP(e.c.defaults(), psnA)
	cq := e.cq(4, nil)
	m, err := mem.Map(4096, mem.Options{})
	c.must(err, "mapping")
	c.defers(m.Unmap)
	p.remove()
	before := e.ctx.Objects()
	pd, err := e.ctx.AllocPD()
	refused := func(what string, o verbs.Object, err error) {
		c.t.Helper()
		if err == nil {
			c.defers(o.Close)
		}
		c.refused(err, what+" on a removed device", verbs.ErrDeviceRemoved)
	}
	refused("alloc_pd", pd, err)
	x, err := e.ctx.CreateCQ(4, nil, 0, 0)
	refused("create_cq", x, err)
	ch, err := e.ctx.CreateCompChannel()
	refused("create_comp_channel", ch, err)
	mr, err := e.pd.RegMR(m.Addr(), 4096, m.Addr(), fullAccess)
	refused("reg_mr", mr, err)
	qp, err := e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq.CQ, RecvCQ: cq.CQ, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	refused("create_qp", qp, err)
	c.refused(q.Modify(q.initAttr(), initMask), "modify_qp on a removed device", verbs.ErrDeviceRemoved)
	c.refused(cq.Resize(100), "resize_cq on a removed device", verbs.ErrDeviceRemoved)
	if got := e.ctx.Objects(); got != before {
		c.failf("what was refused changed the counts from %v to %v", before, got)
	}
}

func removalCloses(c *Case) {
	e, p := c.spare()
	ch := e.channel()
	cq := e.cq(8, ch)
	r := e.region(64)
	o := c.defaults()
	o.scq, o.rcq = cq, cq
	a, b := e.newQP(o, psnA), c.B.newQP(c.defaults(), psnB)
	c.connect(a, b)
	a.recv(RR{id: 1, sg: sg(r.all())})
	p.remove()
	c.refused(e.pd.Close(), "closing a domain with children of a removed device", verbs.ErrBusy)
	c.refused(cq.Close(), "closing a completion queue with a queue pair of a removed device", verbs.ErrBusy)
	c.must(a.Close(), "destroy_qp on a removed device")
	c.must(cq.Close(), "destroy_cq on a removed device")
	c.must(ch.Close(), "destroy_comp_channel on a removed device")
	r.dereg()
	c.must(e.pd.Close(), "dealloc_pd on a removed device")
	e.drainAsync()
	if o := e.ctx.Objects(); !o.Zero() {
		c.failf("after closing everything the removed device counts %v", o)
	}
	c.must(e.ctx.Close(), "closing the context of a removed device")
}

// Neither the device nor a peer with its packets reads or writes the memory of a removed device.
func removalMemory(c *Case) {
	e, p := c.spare()
	a, b := c.linkOf(e, c.B, func(o *opts) { o.timeout, o.retry = fastTimeout, 1 })
	mine, src := e.region(5000).poison(), c.B.region(5000).fill(1)
	a.recv(RR{id: 1, sg: sg(mine.all())})
	p.remove()
	b.send(writeOf(2, mine, 0, src.all()))
	b.failed(b.scq.one(), 2, verbs.WCRetryExcErr)
	c.untouched(mine.bytes(), "the memory of a removed device")
	mine.dereg()
	c.untouched(mine.bytes(), "the memory of a removed device")
}

func removalPeer(c *Case) {
	e, p := c.spare()
	_, b := c.linkOf(e, c.B, func(o *opts) { o.timeout, o.retry = fastTimeout, 1 })
	src := c.B.region(8)
	b.recv(RR{id: 11})
	p.remove()
	b.send(sendOf(1, src.all()), sendOf(2, src.all()))
	b.failed(b.scq.one(), 1, verbs.WCRetryExcErr)
	b.flushed(b.scq, 2)
	b.flushed(b.rcq, 11)
	b.untilState(verbs.QPSErr)
}

func removalListed(c *Case) {
	listed := func(name string) bool {
		ds, err := c.pair.A.Provider.Devices()
		c.must(err, "get_device_list")
		return slices.ContainsFunc(ds, func(d verbs.DeviceInfo) bool { return d.Name == name })
	}
	_, p := c.spare()
	if !listed(p.name) {
		c.failf("the spare device %s is not listed", p.name)
	}
	p.remove()
	if listed(p.name) {
		c.failf("the removed device %s is listed", p.name)
	}
	ctx, err := c.pair.A.Provider.Open(p.name)
	if err == nil {
		c.defers(ctx.Close)
	}
	c.refused(err, "opening a removed device", verbs.ErrUnknownDevice, verbs.ErrDeviceRemoved)
}

func removalRestored(c *Case) {
	e, p := c.spare()
	a, _ := c.linkOf(e, c.B)
	gid := e.gid
	p.remove()
	c.must(p.restore(), "plugging the device in again")
	_, err := a.trySend(sendOf(1))
	c.refused(err, "a turn on a context of before", verbs.ErrDeviceRemoved)
	f, _ := c.spare()
	if f.gid != gid {
		c.failf("the device came back with the address %v, it had %v", f.gid, gid)
	}
	x, y := c.linkOf(f, c.B)
	src, dst := f.region(64).fill(1), c.B.region(64)
	y.recv(RR{id: 9, sg: sg(dst.all())})
	x.send(sendOf(1, src.all()))
	x.sent(x.scq.one(), 1, verbs.WCSend)
	y.received(y.rcq.one(), 9, verbs.WCRecv, 64)
	c.same(dst.bytes(), src.bytes(), "a message from a device that was plugged in again")
}
