package verbstest

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// inlineBytes is the inline capacity that the inline cases request.
const inlineBytes = 16

var inlineCases = []Spec{
	{Name: "inline_buffer_is_free_when_the_post_returns", Rule: "semantics 31", needs: needs{ops: sendWrite.ops, inline: inlineBytes}, run: inlineReusable},
	{Name: "inline_key_is_not_looked_at", Rule: "semantics 31", needs: needs{ops: sendWrite.ops, inline: inlineBytes}, run: inlineKey},
	{Name: "inline_gathers", Rule: "semantics 31; rdma-core#1751", needs: needs{ops: sendWrite.ops, inline: inlineBytes, sge: 4}, run: inlineGathers},
	{Name: "inline_too_large_is_refused", Rule: "semantics 23, 31", needs: needs{ops: sendWrite.ops, inline: inlineBytes}, run: inlineTooLarge},
}

const inline = verbs.SendSignaled | verbs.SendInline

func (c *Case) inlineLink(sges int) (a, b *QP) {
	c.t.Helper()
	return c.link(func(o *opts) { o.inline, o.sges = inlineBytes, sges })
}

func inlineReusable(c *Case) {
	a, b := c.inlineLink(1)
	src, dst := c.A.region(inlineBytes), c.B.region(4*inlineBytes).poison()
	var want []byte
	for i := range 2 {
		b.recv(RR{id: uint64(i), sg: sg(dst.sge(i*inlineBytes, inlineBytes))})
	}
	for i := range 4 {
		src.fill(10 + i)
		want = append(want, src.bytes()...)
		if i < 2 {
			a.send(sendOf(uint64(i), src.all()).with(inline))
		} else {
			a.send(writeOf(uint64(i), dst, i*inlineBytes, src.all()).with(inline))
		}
		src.poison() // the buffer may be reused
	}
	for i := range 4 {
		a.sent(a.scq.one(), uint64(i), []verbs.WCOpcode{verbs.WCSend, verbs.WCSend, verbs.WCRDMAWrite, verbs.WCRDMAWrite}[i])
	}
	b.rcq.take(2)
	c.same(dst.bytes(), want, "inline data, whose buffer was overwritten after the post")
}

func inlineKey(c *Case) {
	a, _ := c.inlineLink(1)
	src, dst := c.A.region(inlineBytes).fill(1), c.B.region(inlineBytes)
	s := src.all()
	s.LKey = 0
	a.send(writeOf(1, dst, 0, s).with(inline))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	c.same(dst.bytes(), src.bytes(), "inline data with lkey 0")
	// The memory need not be registered at all.
	src.fill(2)
	s = src.all()
	s.LKey ^= 0x777
	a.send(writeOf(2, dst, 0, s).with(inline))
	a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
	c.same(dst.bytes(), src.bytes(), "inline data with a wrong lkey")
}

func inlineGathers(c *Case) {
	a, b := c.inlineLink(4)
	src, dst := c.A.region(64).fill(1), c.B.region(64)
	b.recv(RR{id: 9, sg: sg(dst.all())}, RR{id: 10, sg: sg(dst.all())})
	r := sendOf(1, src.sge(40, 5), src.sge(0, 1), src.sge(9, 0), src.sge(20, 10)).with(inline)
	a.send(r)
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, 16)
	want := append([]byte{}, src.bytes()[40:45]...)
	want = append(want, src.bytes()[0])
	want = append(want, src.bytes()[20:30]...)
	c.same(dst.bytes()[:16], want, "inline data gathered")
	a.send(sendOf(2).with(inline))
	a.sent(a.scq.one(), 2, verbs.WCSend)
	b.received(b.rcq.one(), 10, verbs.WCRecv, 0)
}

func inlineTooLarge(c *Case) {
	a, b := c.inlineLink(1)
	n := int(a.cap.MaxInlineData)
	if n < inlineBytes {
		c.failf("%d bytes inline were asked for, %d granted without an error", inlineBytes, n)
	}
	src, dst := c.A.region(n+1).fill(1), c.B.region(n+1).poison()
	got, err := a.trySend(writeOf(1, dst, 0, src.all()).with(inline))
	if got != 0 {
		c.failf("%d bytes inline were accepted, %d are granted", n+1, n)
	}
	c.wantErrno(err, "too much inline data", syscall.EINVAL, syscall.ENOMEM)
	a.scq.none("a refused request does not complete")
	c.untouched(dst.bytes(), "the target of a refused request")
	a.send(writeOf(2, dst, 0, src.sge(0, n)).with(inline))
	a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
	c.same(dst.bytes()[:n], src.bytes()[:n], "as much inline data as granted")
	_ = b
}
