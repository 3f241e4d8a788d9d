package verbstest

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

var mtuCases = func() (out []Spec) {
	for _, m := range []verbs.MTU{verbs.MTU256, verbs.MTU512, verbs.MTU1024, verbs.MTU2048, verbs.MTU4096} {
		n := everyOp
		n.mtu = m
		out = append(out, Spec{
			Name: fmt.Sprintf("rc_messages_around_multiples_of_mtu_%d", m.Bytes()), Rule: "IBTA 9.4, 9.7.2: segmentation", needs: n,
			run: func(c *Case) { aroundMTU(c, m) },
		})
	}
	return append(out,
		Spec{Name: "rc_large_message_is_whole", Rule: "IBTA 9.7.2: segmentation", needs: everyOp, run: largeMessages},
		Spec{Name: "rc_packet_numbers_wrap", Rule: "IBTA 9.7.2: PSN modulo 2^24", needs: sendWrite, run: psnWraps},
	)
}()

// aroundMTU moves messages of k packets, one byte less and one byte more, with each operation.
func aroundMTU(c *Case, m verbs.MTU) {
	a, b := c.link(func(o *opts) { o.mtu = m })
	mtu := int(m.Bytes())
	const most = 5
	src, dst := c.A.region(most*mtu+1).fill(int(m)), c.B.region(most*mtu+3)
	back := c.A.region(most*mtu + 1)
	for _, k := range []int{0, 1, 2, 3, most} {
		for _, n := range []int{k*mtu - 1, k * mtu, k*mtu + 1} {
			if n < 0 {
				continue
			}
			what := func(op verbs.WROpcode) string { return fmt.Sprintf("%v of %d bytes with MTU %d", op, n, mtu) }
			check := func(op verbs.WROpcode) {
				c.same(dst.bytes()[1:n+1], src.bytes()[:n], what(op))
				c.untouched(dst.bytes()[n+1:], what(op)+": memory behind it")
				c.untouched(dst.bytes()[:1], what(op)+": memory before it")
				dst.poison()
			}
			dst.poison()
			b.recv(RR{id: 9, sg: sg(dst.sge(1, n))})
			a.send(sendOf(1, src.sge(0, n)))
			a.sent(a.scq.one(), 1, verbs.WCSend)
			b.received(b.rcq.one(), 9, verbs.WCRecv, n)
			check(verbs.WRSend)

			a.send(writeOf(2, dst, 1, src.sge(0, n)))
			a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
			check(verbs.WRRDMAWrite)

			b.recv(RR{id: 10})
			a.send(writeImmOf(3, 3, dst, 1, src.sge(0, n)))
			a.sent(a.scq.one(), 3, verbs.WCRDMAWrite)
			b.received(b.rcq.one(), 10, verbs.WCRecvRDMAWithImm, n)
			copy(dst.bytes()[1:n+1], src.bytes()[:n])

			back.poison()
			a.send(readOf(4, dst, 1, back.sge(0, n)))
			a.sent(a.scq.one(), 4, verbs.WCRDMARead)
			c.same(back.bytes()[:n], src.bytes()[:n], what(verbs.WRRDMARead))
			c.untouched(back.bytes()[n:], what(verbs.WRRDMARead)+": memory behind it")
		}
	}
}

// largeBytes is larger than any window of packets.
const largeBytes = 1<<20 + 4321

func largeMessages(c *Case) {
	a, b := c.link()
	src, dst, back := c.A.region(largeBytes).fill(1), c.B.region(largeBytes), c.A.region(largeBytes)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendOf(1, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	b.received(b.rcq.one(), 9, verbs.WCRecv, largeBytes)
	c.same(dst.bytes(), src.bytes(), "a large SEND")
	src.fill(2)
	a.send(writeOf(2, dst, 0, src.all()), readOf(3, dst, 0, back.all()))
	a.sent(a.scq.one(), 2, verbs.WCRDMAWrite)
	a.sent(a.scq.one(), 3, verbs.WCRDMARead)
	c.same(back.bytes(), src.bytes(), "a large WRITE read back")
}

// Both directions cross the wrap at different packets of a message.
func psnWraps(c *Case) {
	for back := uint32(0); back < 6; back++ {
		o := c.defaults()
		o.mtu = min(o.mtu, verbs.MTU1024)
		a, b := c.A.newQP(o, (maxPSN-back)&maxPSN), c.B.newQP(o, (maxPSN-back/2)&maxPSN)
		c.connect(a, b)
		n := 3*1024 + 5
		src, dst := c.A.region(n).fill(int(back)), c.B.region(n)
		for i := range 3 {
			b.recv(RR{id: uint64(i), sg: sg(dst.poison().all())})
			a.send(sendOf(uint64(i), src.all()))
			a.sent(a.scq.one(), uint64(i), verbs.WCSend)
			b.received(b.rcq.one(), uint64(i), verbs.WCRecv, n)
			c.same(dst.bytes(), src.bytes(), "a message at the wrap of the packet numbers")
			b.send(writeOf(uint64(i), src, 0, dst.all()))
			b.sent(b.scq.one(), uint64(i), verbs.WCRDMAWrite)
		}
	}
}
