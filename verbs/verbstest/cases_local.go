package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// localFault is one invalid use of local memory.
type localFault struct {
	name string
	sge  func(e *End, r *Region) verbs.SGE
}

var localFaults = []localFault{
	{"wrong_lkey", func(_ *End, r *Region) verbs.SGE { s := r.sge(0, 64); s.LKey ^= 0x00c0ffee; return s }},
	{"one_byte_before", func(_ *End, r *Region) verbs.SGE { s := r.sge(0, 64); s.Addr--; return s }},
	{"one_byte_behind", func(_ *End, r *Region) verbs.SGE { return r.sge(r.n-63, 64) }},
	{"range_that_wraps", func(_ *End, r *Region) verbs.SGE { s := r.sge(0, 64); s.Addr = ^uint64(0) - 31; return s }},
	{"key_of_another_domain", func(e *End, _ *Region) verbs.SGE { return e.regionOf(e.newPD(), 64, fullAccess, 0).sge(0, 64) }},
	{"deregistered_key", func(e *End, _ *Region) verbs.SGE {
		r := e.region(64)
		s := r.sge(0, 64)
		r.dereg()
		return s
	}},
}

var localCases = func() (out []Spec) {
	const rule = "IBTA 10.6.3.1, 9.9.6: local protection error"
	for _, f := range localFaults {
		out = append(out,
			Spec{Name: "rc_send_from_" + f.name + "_is_loc_prot_err", Rule: rule, needs: sendOnly, run: func(c *Case) { badSource(c, f, false) }},
			Spec{Name: "rc_write_from_" + f.name + "_is_loc_prot_err", Rule: rule, needs: writeOnly, run: func(c *Case) { badSource(c, f, true) }},
			Spec{Name: "rc_read_into_" + f.name + "_is_loc_prot_err", Rule: rule, needs: readOnly, run: func(c *Case) { badReadBuffer(c, f.sge) }},
			Spec{Name: "rc_receive_into_" + f.name + "_fails_both_sides", Rule: "IBTA 9.7.5.2.8: NAK remote operational error; rxe RESPST_ERR_MALFORMED_WQE", needs: sendOnly,
				run: func(c *Case) { badReceive(c, f.sge) }})
	}
	ro := func(e *End, _ *Region) verbs.SGE {
		return e.regionOf(e.pd, 64, verbs.AccessRemoteRead, 0).poison().sge(0, 64)
	}
	return append(out,
		Spec{Name: "rc_read_needs_local_write", Rule: "semantics 11, 37; ibv_reg_mr(3)", needs: readOnly, run: func(c *Case) { badReadBuffer(c, ro) }},
		Spec{Name: "rc_receive_needs_local_write", Rule: "semantics 37; ibv_reg_mr(3)", needs: sendOnly, run: func(c *Case) { badReceive(c, ro) }},
		Spec{Name: "rc_second_element_is_checked_too", Rule: "IBTA 10.6.3.1", needs: needs{ops: sendOnly.ops, sge: 2}, run: badSecondElement},
	)
}()

// badSource checks that the request fails locally, at once. The peer does not notice and is not
// in ERR.
func badSource(c *Case, f localFault, write bool) {
	a, b := c.link()
	r, dst := c.A.region(256).fill(1), c.B.region(256).poison()
	b.recv(RR{id: 9, sg: sg(dst.all())})
	bad := f.sge(c.A, r)
	if write {
		a.send(writeOf(1, dst, 0, bad), writeOf(2, dst, 0, r.all()))
	} else {
		a.send(sendOf(1, bad), sendOf(2, r.all()))
	}
	a.failed(a.scq.one(), 1, verbs.WCLocProtErr)
	a.flushed(a.scq, 2)
	a.untilState(verbs.QPSErr)
	b.rcq.none("a request that failed locally is not sent")
	c.untouched(dst.bytes(), "the peer's memory")
}

func badReadBuffer(c *Case, bad func(*End, *Region) verbs.SGE) {
	a, _ := c.link()
	r, src := c.A.region(256).poison(), c.B.region(256).fill(1)
	a.send(readOf(1, src, 0, bad(c.A, r)), readOf(2, src, 0, r.sge(0, 8)))
	a.failed(a.scq.one(), 1, verbs.WCLocProtErr)
	a.flushed(a.scq, 2)
	a.untilState(verbs.QPSErr)
	c.untouched(r.bytes(), "the memory around a READ's wrong buffer")
}

// badReceive: the status of the receive is LOC_QP_OP_ERR on rxe, LOC_PROT_ERR on hardware.
func badReceive(c *Case, bad func(*End, *Region) verbs.SGE) {
	a, b := c.link()
	src, r := c.A.region(64).fill(1), c.B.region(256).poison()
	b.recv(RR{id: 9, sg: sg(bad(c.B, r))}, RR{id: 10, sg: sg(r.all())})
	a.send(sendOf(1, src.all()))
	b.failed(b.rcq.one(), 9, verbs.WCLocProtErr, verbs.WCLocQPOpErr)
	b.flushed(b.rcq, 10)
	a.failed(a.scq.one(), 1, verbs.WCRemOpErr)
	c.bothDead(a, b)
	c.untouched(r.bytes(), "the memory around a wrong receive buffer")
}

func badSecondElement(c *Case) {
	a, b := c.link(func(o *opts) { o.sges = 2 })
	r, dst := c.A.region(256).fill(1), c.B.region(256)
	b.recv(RR{id: 9, sg: sg(dst.all())})
	bad := r.sge(0, 64)
	bad.LKey ^= 0x00c0ffee
	a.send(sendOf(1, r.sge(0, 64), bad))
	a.failed(a.scq.one(), 1, verbs.WCLocProtErr)
	a.untilState(verbs.QPSErr)
	b.rcq.none("a message that could not be gathered is not received")
}
