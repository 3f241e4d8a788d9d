package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var invalidateCases = []Spec{
	{Name: "local_inv_takes_the_key_of_a_window_away", Rule: "IBTA 10.6.7.2.5; ibv_wr_local_inv(3)", needs: mw2Inv, run: localInv},
	{Name: "local_inv_lets_a_window_be_bound_again", Rule: "IBTA o10-37.2.30: free again", needs: mw2Inv, run: localInvRebind},
	{Name: "local_inv_lets_go_of_the_region", Rule: "IBTA 10.6.7.2.4; rxe rxe_do_invalidate_mw", needs: mw2Inv, run: localInvRegion},
	{Name: "local_inv_of_an_unknown_key_fails", Rule: "rxe rxe_do_local_ops: LOC_QP_OP_ERR", needs: mw2Inv, run: localInvUnknown},
	{Name: "local_inv_of_an_old_key_fails", Rule: "rxe rxe_invalidate_mw: the whole key", needs: mw2Inv, run: localInvOld},
	{Name: "local_inv_of_a_type_1_window_fails", Rule: "IBTA o10-37.2.26; rxe rxe_check_invalidate_mw", needs: mw2Inv.with(func(n *needs) { n.caps |= verbs.CapMemWindow }), run: localInvType1},
	{Name: "local_inv_behind_a_resend_happens_once", Rule: "IBTA 9.7.5.2.8: packets are sent again; 10.8.3.3", needs: mw2Inv, run: localInvResend},
	{Name: "local_inv_waits_for_what_is_before_it", Rule: "IBTA 10.8.3.3: ordering; rxe local operations in order", needs: mw2Inv, run: localInvOrder},
	{Name: "send_with_inv_takes_the_key_away_and_says_so", Rule: "IBTA 9.4.1.1, 11.4.2.1: WITH_INV; semantics 25", needs: sendInv, run: remoteInv},
	{Name: "send_with_inv_lets_the_receiver_bind_again", Rule: "IBTA 10.6.7.2.5", needs: sendInv, run: remoteInvRebind},
	{Name: "send_with_inv_of_an_unknown_key_fails_the_receiver", Rule: "IBTA 9.9.6: class J; rxe RESPST_ERR_INVALIDATE_RKEY", needs: sendInv, run: remoteInvUnknown},
	{Name: "send_with_inv_carries_its_message", Rule: "IBTA 9.4.1.1", needs: sendInv, run: remoteInvMessage},
	{Name: "send_with_inv_lost_and_sent_again_invalidates_once", Rule: "IBTA 9.7.5.1: a duplicate is not executed", needs: sendInv.onPackets(), run: remoteInvOnce},
}

func localInv(c *Case) {
	a, b, _, r, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	src := c.A.region(8).fill(1)
	a.reaches(r, 0, key, src)
	r.poison()
	b.invalidateHere(key)
	a.isRefused(writeOf(1, r, 0, src.all()).key(key), "a WRITE by a key that was invalidated")
	c.untouched(r.bytes(), "the region of a window that was invalidated")
}

func localInvRebind(c *Case) {
	a, b, w, r, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	src := c.A.region(8).fill(1)
	for i := range 5 {
		a.reaches(r, 64*i, key, src)
		b.invalidateHere(key)
		key = b.bindTo(w, r, 64*(i+1), 512, mwWrite)
	}
}

func localInvRegion(c *Case) {
	_, b, _, r, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	c.refused(r.mr.Close(), "dereg_mr of a region with a window", verbs.ErrBusy)
	b.invalidateHere(key)
	r.dereg()
}

// invFails checks the error: a binding error on adapters, an operation error on rxe.
func (q *QP) invFails(what string, key uint32) {
	q.c.t.Helper()
	q.failsSomehow(what, localInvOf(1, key), verbs.WCLocQPOpErr, verbs.WCMWBindErr, verbs.WCLocAccessErr)
}

func localInvUnknown(c *Case) {
	_, b := c.link()
	b.invFails("LOCAL_INV of a key that nothing has", 0x7f00ff12)
}

func localInvOld(c *Case) {
	a, b, w, r, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	b.invalidateHere(key)
	next := b.bindTo(w, r, 0, 512, mwWrite)
	a.reaches(r, 0, next, c.A.region(8).fill(1))
	b.invFails("LOCAL_INV of a key of an earlier binding", key)
}

func localInvType1(c *Case) {
	_, b, _, _, key := c.windowed(verbs.MWType1, 0, 512, mwWrite)
	b.invFails("LOCAL_INV of a type 1 window", key)
}

func localInvResend(c *Case) {
	a, b := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = verbs.RNRRetryInfinite, fastRNR })
	w, r, word, note := c.B.mw(verbs.MWType2), c.B.target(512), c.B.region(8), c.A.region(8)
	key := b.bindTo(w, r, 0, 512, mwWrite)
	b.send(sendOf(1, word.all()), localInvOf(2, key), sendOf(3, word.all()))
	b.scq.none("the first message waits for a receive")
	a.recv(RR{id: 8, sg: sg(note.all())}, RR{id: 9, sg: sg(note.all())})
	b.sent(b.scq.one(), 1, verbs.WCSend)
	b.sent(b.scq.one(), 2, verbs.WCLocalInv)
	b.sent(b.scq.one(), 3, verbs.WCSend)
	r.dereg()
}

func localInvOrder(c *Case) {
	_, b := c.link()
	w, r, src := c.B.mw(verbs.MWType2), c.B.target(512), c.B.region(8)
	far := c.A.region(64)
	first := bindOf(2, w, r, 0, 512, mwWrite)
	b.send(writeOf(1, far, 0, src.all()), first, localInvOf(3, first.rkey), writeOf(4, far, 0, src.all()))
	b.sent(b.scq.one(), 1, verbs.WCRDMAWrite)
	b.sent(b.scq.one(), 2, verbs.WCBindMW)
	b.sent(b.scq.one(), 3, verbs.WCLocalInv)
	b.sent(b.scq.one(), 4, verbs.WCRDMAWrite)
	r.dereg()
}

func remoteInv(c *Case) {
	a, b, _, r, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	src := c.A.region(8).fill(1)
	b.recv(RR{id: 9})
	a.reaches(r, 0, key, src)
	r.poison()
	a.send(sendInvOf(1, key))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	w := b.rcq.one()
	b.received(w, 9, verbs.WCRecv, 0)
	if w.Flags&verbs.WCWithInv == 0 || w.ImmData != key {
		c.failf("the key %#x was invalidated, the completion says %#x, flags %v", key, w.ImmData, w.Flags)
	}
	if w.Flags&verbs.WCWithImm != 0 {
		c.failf("a SEND_WITH_INV came with flags %v", w.Flags)
	}
	a.isRefused(writeOf(2, r, 0, src.all()).key(key), "a WRITE by a key that the peer invalidated")
	c.untouched(r.bytes(), "the region of a window that was invalidated")
}

func remoteInvRebind(c *Case) {
	a, b, w, r, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	src := c.A.region(8).fill(1)
	for i := range 4 {
		b.recv(RR{id: uint64(i)})
		a.reaches(r, 64*i, key, src)
		a.send(sendInvOf(uint64(i), key))
		a.sent(a.scq.one(), uint64(i), verbs.WCSend)
		b.received(b.rcq.one(), uint64(i), verbs.WCRecv, 0)
		key = b.bindTo(w, r, 64*(i+1), 512, mwWrite)
	}
}

// The sender's status is left open: rxe acknowledges the message, adapters answer with a NAK.
func remoteInvUnknown(c *Case) {
	a, b := c.link(func(o *opts) { o.timeout, o.retry = fastTimeout, 1 })
	b.recv(RR{id: 9}, RR{id: 10})
	a.send(sendInvOf(1, 0x7f00ff12))
	w := b.rcq.one()
	if w.Status == verbs.WCSuccess || w.WRID != 9 {
		c.failf("a receive whose key could not be invalidated completed as %s", show(w))
	}
	b.untilState(verbs.QPSErr)
	b.flushed(b.rcq, 10)
	a.scq.one()
}

func remoteInvMessage(c *Case) {
	a, b, _, _, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	src, dst := c.A.region(5000).fill(1), c.B.region(5000)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	a.send(sendInvOf(1, key, src.all()))
	a.sent(a.scq.one(), 1, verbs.WCSend)
	w := b.rcq.one()
	b.received(w, 9, verbs.WCRecv, 5000)
	if w.Flags&verbs.WCWithInv == 0 || w.ImmData != key {
		c.failf("the key %#x was invalidated, the completion says %#x, flags %v", key, w.ImmData, w.Flags)
	}
	c.same(dst.bytes(), src.bytes(), "a message with a key to invalidate")
}

// The acknowledgement is lost, and the message arrives twice: the second must not invalidate the
// new binding.
func remoteInvOnce(c *Case) {
	a, b := c.link(func(o *opts) { o.timeout = fastTimeout })
	w, r := c.B.mw(verbs.MWType2), c.B.target(512)
	key := b.bindTo(w, r, 0, 512, mwWrite)
	b.recv(RR{id: 9}, RR{id: 10})
	c.fault(c.B, c.A, Fault{Drop: []uint64{1}})
	a.send(sendInvOf(1, key))
	b.received(b.rcq.one(), 9, verbs.WCRecv, 0)
	a.sent(a.scq.one(), 1, verbs.WCSend)
	next := b.bindTo(w, r, 0, 512, mwWrite)
	a.reaches(r, 0, next, c.A.region(8).fill(1))
	b.rcq.none("the message was received once")
}
