package verbstest

import (
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// DMABuf is memory that another device exports, with a CPU mapping of it.
type DMABuf struct {
	FD   int
	View *mem.Arena
	// CloseFD closes the descriptor, Close the whole object. Both are idempotent.
	CloseFD, Close func() error
}

var dmabufRC = needs{dmabuf: true, ops: sendWrite.ops | readOnly.ops, rdAtom: 1}

var dmabufCases = []Spec{
	{Name: "dmabuf_region_takes_send_write_and_read", Rule: "ibv_reg_mr(3): ibv_reg_dmabuf_mr", needs: dmabufRC, run: dmabufOps},
	{Name: "dmabuf_region_begins_at_its_offset", Rule: "ibv_reg_mr(3): offset, iova", needs: dmabufRC, run: dmabufOffset},
	{Name: "dmabuf_region_ends_where_it_ends", Rule: "IBTA 9.7.4.1.5: range", needs: dmabufRC, run: dmabufBounds},
	{Name: "dmabuf_region_outlives_its_descriptor", Rule: "kernel, dma-buf.rst: the importer holds a reference", needs: dmabufRC, run: dmabufOutlives},
	{Name: "dmabuf_region_is_counted_and_keeps_its_domain", Rule: "contract: Object.Close", needs: needs{dmabuf: true}, run: dmabufCounted},
	{Name: "dmabuf_with_wrong_arguments_is_refused", Rule: "ibv_reg_mr(3): ibv_reg_dmabuf_mr", needs: needs{dmabuf: true}, run: dmabufRefused},
	{Name: "dmabuf_of_no_descriptor_is_refused", Rule: "ibv_reg_mr(3); contract: ErrNotSupported", run: dmabufNoFD},
}

// export returns memory of another device that lives until the case ends.
func (c *Case) export(n int) *DMABuf {
	c.t.Helper()
	d, err := c.pair.Caps.DMABuf(n)
	c.must(err, "exporting %d bytes", n)
	c.defers(d.Close)
	return d
}

// imported registers n bytes from off, named from iova on.
func (e *End) imported(d *DMABuf, off, n int, iova uint64) *Region {
	e.c.t.Helper()
	mr, err := e.pd.RegDMABuf(d.FD, uint64(off), uint64(n), iova, fullAccess)
	e.c.must(err, "reg_dmabuf_mr of %d bytes from %d", n, off)
	r := &Region{end: e, arena: d.View, mr: mr, n: n}
	e.c.defers(r.close)
	return r
}

func dmabufOps(c *Case) {
	a, b := c.link()
	d := c.export(8 * targetSize)
	gpu := c.B.imported(d, 0, 8*targetSize, 0)
	src, got := c.A.region(9000).fill(1), c.A.region(9000)
	b.recv(RR{id: 9, sg: sg(gpu.sge(4*targetSize, 9000))})
	a.send(writeOf(1, gpu, 100, src.all()), readOf(2, gpu, 100, got.all()), sendOf(3, src.all()))
	for i, op := range []verbs.WCOpcode{verbs.WCRDMAWrite, verbs.WCRDMARead, verbs.WCSend} {
		a.sent(a.scq.one(), uint64(i+1), op)
	}
	b.received(b.rcq.one(), 9, verbs.WCRecv, 9000)
	c.same(d.View.Bytes()[100:9100], src.bytes(), "a WRITE into another device's memory")
	c.same(got.bytes(), src.bytes(), "a READ of it")
	c.same(d.View.Bytes()[4*targetSize:4*targetSize+9000], src.bytes(), "a message into it")
}

func dmabufOffset(c *Case) {
	a, _ := c.link()
	d := c.export(4 * targetSize)
	mem.Poison(d.View.Bytes())
	const off, iova = targetSize + 64, 0x7000_0000_0040
	gpu := c.B.imported(d, off, targetSize, iova)
	if gpu.mr.IOVA() != iova || gpu.mr.Length() != targetSize || gpu.mr.Addr() != 0 {
		c.failf("the region has %d bytes at 0x%x, named from 0x%x", gpu.mr.Length(), gpu.mr.Addr(), gpu.mr.IOVA())
	}
	src := c.A.region(targetSize).fill(1)
	a.send(writeOf(1, gpu, 0, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	v := d.View.Bytes()
	c.untouched(v[:off], "what is before the offset")
	c.same(v[off:off+targetSize], src.bytes(), "a WRITE at the offset")
	c.untouched(v[off+targetSize:], "what is behind the region")
}

func dmabufBounds(c *Case) {
	a, b := c.link()
	d := c.export(4 * targetSize)
	mem.Poison(d.View.Bytes())
	gpu := c.B.imported(d, 0, targetSize, 0)
	a.send(writeOf(1, gpu, targetSize-63, c.A.region(64).fill(1).all()))
	a.failed(a.scq.one(), 1, verbs.WCRemAccessErr)
	c.untouched(d.View.Bytes(), "the exported memory")
	c.bothDead(a, b)
}

func dmabufOutlives(c *Case) {
	a, _ := c.link()
	d := c.export(4 * targetSize)
	gpu := c.B.imported(d, 0, 4*targetSize, 0)
	c.must(d.CloseFD(), "closing the descriptor")
	src := c.A.region(9000).fill(1)
	a.send(writeOf(1, gpu, 0, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	c.same(d.View.Bytes()[:9000], src.bytes(), "a WRITE after the descriptor was closed")
}

func dmabufCounted(c *Case) {
	before := c.A.ctx.Objects()
	pd := c.A.newPD()
	mr, err := pd.RegDMABuf(c.export(targetSize).FD, 0, targetSize, 0, fullAccess)
	c.must(err, "reg_dmabuf_mr")
	c.defers(mr.Close)
	if got := c.A.ctx.Objects(); got.MR != before.MR+1 {
		c.failf("after reg_dmabuf_mr the context counts %v, before it %v", got, before)
	}
	c.refused(pd.Close(), "closing a domain with a region", verbs.ErrBusy)
	c.must(mr.Close(), "dereg_mr")
	c.must(mr.Close(), "dereg_mr again")
	c.must(pd.Close(), "closing the domain after its region")
}

func dmabufRefused(c *Case) {
	d := c.export(2 * targetSize)
	for what, x := range map[string]struct {
		fd                int
		off, length, iova uint64
		access            verbs.AccessFlags
	}{
		"a negative descriptor":              {-1, 0, targetSize, 0, fullAccess},
		"no bytes":                           {d.FD, 0, 0, 0, fullAccess},
		"more than is exported":              {d.FD, 0, 2*targetSize + 1, 0, fullAccess},
		"a range that wraps around":          {d.FD, 1 << 63, 1<<63 + 1, 0, fullAccess},
		"another place in the page":          {d.FD, 64, targetSize, 65, fullAccess},
		"binding windows":                    {d.FD, 0, targetSize, 0, fullAccess | verbs.AccessMWBind},
		"on demand":                          {d.FD, 0, targetSize, 0, fullAccess | verbs.AccessOnDemand},
		"remote writing without local write": {d.FD, 0, targetSize, 0, verbs.AccessRemoteWrite},
	} {
		_, err := c.A.pd.RegDMABuf(x.fd, x.off, x.length, x.iova, x.access)
		c.refused(err, "reg_dmabuf_mr: "+what, verbs.ErrInvalid)
	}
}

func dmabufNoFD(c *Case) {
	before := c.A.ctx.Objects()
	_, err := c.A.pd.RegDMABuf(1<<20, 0, targetSize, 0, fullAccess)
	c.refused(err, "reg_dmabuf_mr of a descriptor that is not open", verbs.ErrNotSupported, verbs.ErrInvalid)
	if got := c.A.ctx.Objects(); got != before {
		c.failf("after a refused registration the context counts %v, before it %v", got, before)
	}
}
