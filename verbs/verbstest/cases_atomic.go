package verbstest

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var atomicCases = []Spec{
	{Name: "atomic_cas_swaps_only_on_match", Rule: "IBTA 9.4.5; ibv_post_send(3)", needs: atomicOnly, run: casSwaps},
	{Name: "atomic_faa_adds_and_wraps", Rule: "IBTA 9.4.5; ibv_post_send(3)", needs: atomicOnly, run: faaAdds},
	{Name: "atomic_returns_the_value_before", Rule: "IBTA 9.4.5; semantics 37: host order", needs: atomicOnly, run: atomicReturns},
	{Name: "atomic_misaligned_is_refused", Rule: "IBTA 9.4.5; rxe RESPST_ERR_MISALIGNED_ATOMIC, validate_send_wr", needs: atomicOnly, run: atomicMisaligned},
	{Name: "atomic_result_needs_8_bytes", Rule: "IBTA 9.4.5; rxe validate_send_wr", needs: atomicOnly, run: atomicShort},
	{Name: "atomic_needs_local_write_for_the_result", Rule: "semantics 37; ibv_reg_mr(3)", needs: atomicOnly, run: atomicLocal},
}

func casSwaps(c *Case) {
	a, _ := c.link()
	res, dst := c.A.region(16), c.B.region(24)
	*dst.word(0), *dst.word(8), *dst.word(16) = 11, 42, 33
	a.send(casOf(1, dst, 8, 42, 77, res.sge(0, 8)))
	a.sent(a.scq.one(), 1, verbs.WCCompSwap)
	if *res.word(0) != 42 || *dst.word(8) != 77 {
		c.failf("a matching CAS of 42 to 77 returned %d and left %d", *res.word(0), *dst.word(8))
	}
	a.send(casOf(2, dst, 8, 42, 99, res.sge(8, 8)))
	a.sent(a.scq.one(), 2, verbs.WCCompSwap)
	if *res.word(8) != 77 || *dst.word(8) != 77 {
		c.failf("a CAS of 42 against 77 returned %d and left %d", *res.word(8), *dst.word(8))
	}
	if *dst.word(0) != 11 || *dst.word(16) != 33 {
		c.failf("a CAS changed its neighbours to %d and %d", *dst.word(0), *dst.word(16))
	}
}

func faaAdds(c *Case) {
	a, _ := c.link()
	res, dst := c.A.region(8), c.B.region(24)
	*dst.word(0), *dst.word(8), *dst.word(16) = 11, ^uint64(0)-1, 33
	value := ^uint64(0) - 1
	for i, add := range []uint64{1, 1, 5, ^uint64(0), 1 << 63} {
		a.send(addOf(uint64(i), dst, 8, add, res.sge(0, 8)))
		w := a.scq.one()
		a.sent(w, uint64(i), verbs.WCFetchAdd)
		if w.ByteLen != 8 {
			c.failf("an atomic completed with byte_len %d", w.ByteLen)
		}
		if *res.word(0) != value || *dst.word(8) != value+add {
			c.failf("%#x + %#x returned %#x and left %#x", value, add, *res.word(0), *dst.word(8))
		}
		value += add
	}
	if *dst.word(0) != 11 || *dst.word(16) != 33 {
		c.failf("additions changed their neighbours to %d and %d", *dst.word(0), *dst.word(16))
	}
}

// All bytes of the operands and the result are in their places.
func atomicReturns(c *Case) {
	const before, swap = 0x0102030405060708, 0x1122334455667788
	a, _ := c.link()
	res, dst := c.A.region(24).poison(), c.B.region(8)
	*dst.word(0) = before
	a.send(casOf(1, dst, 0, before, swap, res.sge(8, 8)))
	a.sent(a.scq.one(), 1, verbs.WCCompSwap)
	if *res.word(8) != before || *dst.word(0) != swap {
		c.failf("CAS of %#x to %#x returned %#x and left %#x", uint64(before), uint64(swap), *res.word(8), *dst.word(0))
	}
	c.untouched(res.bytes()[:8], "memory before the result")
	c.untouched(res.bytes()[16:], "memory behind the result")
}

func atomicMisaligned(c *Case) {
	for _, off := range []int{1, 4, 7} {
		a, b := c.link()
		res, dst := c.A.region(8), c.B.region(16).fill(1)
		before := append([]byte{}, dst.bytes()...)
		if _, err := a.trySend(addOf(1, dst, off, 1, res.all())); err != nil {
			c.wantErrno(err, "an atomic at a misaligned address", syscall.EINVAL)
		} else {
			a.failed(a.scq.one(), 1, verbs.WCRemInvReqErr)
			c.bothDead(a, b)
		}
		c.same(dst.bytes(), before, "the target of a misaligned atomic")
	}
}

func atomicShort(c *Case) {
	a, _ := c.link()
	res, dst := c.A.region(16).poison(), c.B.region(8)
	*dst.word(0) = 5
	_, err := a.trySend(addOf(1, dst, 0, 1, res.sge(0, 4)))
	switch {
	case err == nil:
		a.failed(a.scq.one(), 1, verbs.WCLocLenErr, verbs.WCLocQPOpErr, verbs.WCLocProtErr, verbs.WCRemInvReqErr)
	case !errors.Is(err, syscall.EINVAL):
		c.failf("an atomic with a result of 4 bytes answered %v", err)
	}
	c.untouched(res.bytes()[4:], "memory behind a result that is too short")
}

func atomicLocal(c *Case) {
	a, _ := c.link()
	res, dst := c.A.regionOf(c.A.pd, 8, verbs.AccessRemoteRead, 0).poison(), c.B.region(8)
	a.send(addOf(1, dst, 0, 1, res.all()))
	a.failed(a.scq.one(), 1, verbs.WCLocProtErr)
	a.untilState(verbs.QPSErr)
	c.untouched(res.bytes(), "a result in memory that may not be written")
}
