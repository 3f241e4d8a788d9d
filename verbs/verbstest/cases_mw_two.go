package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var mw2Cases = append(windowCases(verbs.MWType2, mw2Only),
	Spec{Name: "mw1_bound_again_forgets_the_old_key", Rule: "ibv_bind_mw(3): the old binding ends; IBTA 10.6.7.2.1", needs: mw1Only, run: mw1Again},
	Spec{Name: "mw1_bound_to_nothing_is_unbound", Rule: "ibv_bind_mw(3): length 0 unbinds", needs: mw1Only, run: mw1Unbind},
	Spec{Name: "mw1_serves_every_queue_pair_of_its_domain", Rule: "IBTA 10.6.7.2.2: type 1 is bound to the domain", needs: mw1Only, run: mw1EveryQP},
	Spec{Name: "mw1_several_windows_share_a_region", Rule: "IBTA 10.6.7.2", needs: mw1Only, run: mw1Several},
	Spec{Name: "mw2_serves_only_the_queue_pair_it_was_bound_by", Rule: "IBTA 10.6.7.2.3: type 2B; rxe rxe_lookup_mw", needs: mw2Only, run: mw2OneQP},
	Spec{Name: "mw2_bound_cannot_be_bound_again", Rule: "IBTA o10-37.2.30; rxe rxe_check_bind_mw", needs: mw2Only, run: mw2Again},
	Spec{Name: "mw2_bound_to_nothing_is_refused", Rule: "IBTA o10-37.2.40; rxe rxe_check_bind_mw", needs: mw2Only, run: mw2Nothing},
	Spec{Name: "mw2_behind_a_resend_is_bound_once", Rule: "IBTA 9.7.5.2.8: packets are sent again; 10.8.3.3", needs: mw2Only, run: mw2Resend},
	Spec{Name: "mw2_cannot_be_bound_by_a_queue_pair_of_another_domain", Rule: "IBTA C10-72; rxe rxe_check_bind_mw", needs: mw2Only, run: mw2OtherPD},
)

func mw1Again(c *Case) {
	a, b, w, r, key := c.windowed(verbs.MWType1, 0, 512, mwWrite)
	src := c.A.region(8).fill(1)
	next := b.bindTo(w, r, 1024, 512, mwWrite)
	if next == key || next&^0xff != key&^0xff {
		c.failf("the key after %#x is %#x: it must differ in its low 8 bits, and there only", key, next)
	}
	a.reaches(r, 1024, next, src)
	a.isRefused(writeOf(1, r, 0, src.all()).key(key), "a WRITE through the old binding of a window")
	c.untouched(r.bytes()[:512], "the memory of the old binding")
}

func mw1Unbind(c *Case) {
	a, b, w, r, key := c.windowed(verbs.MWType1, 0, 512, mwWrite)
	b.send(SR{id: 1, op: verbs.WRBindMW, flags: signaled, rkey: verbs.IncRKey(w.RKey()), bind: &binding{mw: w.Handle()}})
	b.sent(b.scq.one(), 1, verbs.WCBindMW)
	r.dereg() // no window uses it
	other := c.B.target(512)
	a.isRefused(writeOf(1, other, 0, c.A.region(8).all()).key(key), "a WRITE through a window that was unbound")
	c.untouched(other.bytes(), "memory that no window is bound to")
}

func mw1EveryQP(c *Case) {
	a, _, _, r, key := c.windowed(verbs.MWType1, 0, 512, mwWrite)
	src := c.A.region(8).fill(1)
	a.reaches(r, 0, key, src)
	a2, _ := c.link()
	a2.reaches(r, 64, key, src)
}

func mw1Several(c *Case) {
	a, b, w, r, key := c.windowed(verbs.MWType1, 0, 1024, mwWrite)
	src := c.A.region(8).fill(1)
	w2 := c.B.mw(verbs.MWType1)
	key2 := b.bindTo(w2, r, 512, 1024, mwWrite) // they may overlap
	a.reaches(r, 600, key, src)
	a.reaches(r, 700, key2, src)
	c.must(w.Close(), "dealloc_mw of one of two windows")
	a.reaches(r, 1400, key2, src)
	c.refused(r.mr.Close(), "dereg_mr of a region with a window left", verbs.ErrBusy)
}

func mw2OneQP(c *Case) {
	a, _, _, r, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	src := c.A.region(8).fill(1)
	a2, _ := c.link()
	a2.isRefused(writeOf(1, r, 0, src.all()).key(key), "a WRITE over another queue pair through a type 2 window")
	c.untouched(r.bytes(), "the region of a window that belongs to another queue pair")
	a.reaches(r, 0, key, src)
}

func mw2Again(c *Case) {
	a, b, w, r, key := c.windowed(verbs.MWType2, 0, 512, mwWrite)
	a.reaches(r, 0, key, c.A.region(8).fill(1))
	b.failsSomehow("binding a type 2 window that is bound", bindOf(1, w, r, 1024, 512, mwWrite), verbs.WCMWBindErr)
}

func mw2Nothing(c *Case) {
	w, r := c.B.mw(verbs.MWType2), c.B.target(512)
	req := bindOf(1, w, r, 0, 0, mwWrite)
	c.bindFails("binding a type 2 window to no bytes", w, req)
}

// B's first message is sent again until A has a receive. The binding behind it is not a packet.
func mw2Resend(c *Case) {
	a, b := c.link(func(o *opts) { o.rnrRetry, o.rnrTimer = verbs.RNRRetryInfinite, fastRNR })
	w, r := c.B.mw(verbs.MWType2), c.B.target(512)
	req, word, note := bindOf(2, w, r, 0, 512, mwWrite), c.B.region(8), c.A.region(8)
	b.send(sendOf(1, word.all()), req, sendOf(3, word.all()))
	b.scq.none("the first message waits for a receive")
	a.recv(RR{id: 8, sg: sg(note.all())}, RR{id: 9, sg: sg(note.all())})
	b.sent(b.scq.one(), 1, verbs.WCSend)
	b.sent(b.scq.one(), 2, verbs.WCBindMW)
	b.sent(b.scq.one(), 3, verbs.WCSend)
	a.received(a.rcq.one(), 8, verbs.WCRecv, 8)
	a.received(a.rcq.one(), 9, verbs.WCRecv, 8)
	a.reaches(r, 0, req.rkey, c.A.region(8).fill(1))
}

func mw2OtherPD(c *Case) {
	_, b := c.link(func(o *opts) { o.pd = nil })
	o := c.defaults()
	o.pd = c.B.newPD()
	other := c.B.newQP(o, psnB)
	other.toInit()
	other.toRTR(Info{QPN: b.Num(), PSN: psnA, GID: c.B.gid, LID: c.B.lid})
	other.toRTS()
	w, r := c.B.mw(verbs.MWType2), c.B.target(512)
	other.failsSomehow("binding by a queue pair of another domain", bindOf(1, w, r, 0, 512, mwWrite), verbs.WCMWBindErr)
}
