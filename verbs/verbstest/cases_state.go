package verbstest

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

var stateCases = []Spec{
	{Name: "qp_illegal_transitions_are_refused_and_change_nothing", Rule: "IBTA 11.2.5.2; ib_modify_qp_is_ok", run: illegalTransitions},
	{Name: "qp_legal_transitions_are_taken", Rule: "IBTA 10.3.1, figure 124", run: legalTransitions},
	{Name: "qp_query_reads_what_was_set", Rule: "ibv_query_qp(3)", run: queryReads},
	{Name: "qp_values_out_of_range_are_refused", Rule: "IBTA 11.2.5.2: invalid modifiers", run: badValues},
	{Name: "qp_numbers_differ", Rule: "IBTA 10.3.1: unique within the device", run: qpNumbers},
	{Name: "sqd_holds_new_sends_until_rts", Rule: "IBTA 10.3.1.5", needs: sendOnly, run: sqdHolds},
	{Name: "sqd_drained_is_reported", Rule: "IBTA 11.6.3.3; ibv_get_async_event(3)", run: sqdDrained},
	{Name: "comm_est_is_reported_in_rtr", Rule: "IBTA 11.6.3.1; rdma_notify(3)", needs: needs{ops: sendOnly.ops, commEst: true}, run: commEst},
	{Name: "reset_forgets_posted_work_and_can_be_used_again", Rule: "IBTA 10.3.1.1; rdma-core providers clean the CQ", needs: sendOnly, run: resetForgets},
}

// stateQPs makes one queue pair in each state that can be reached by calls.
func stateQPs(c *Case) map[verbs.QPState]*QP {
	out := map[verbs.QPState]*QP{}
	mk := func(s verbs.QPState) *QP {
		q := c.A.newQP(c.defaults(), psnA)
		peer := Info{QPN: q.Num(), PSN: psnB, GID: c.B.gid, LID: c.B.lid}
		if s != verbs.QPSReset {
			q.toInit()
		}
		if s == verbs.QPSRTR || s == verbs.QPSRTS || s == verbs.QPSSQD {
			q.toRTR(peer)
		}
		if s == verbs.QPSRTS || s == verbs.QPSSQD {
			q.toRTS()
		}
		if s == verbs.QPSSQD || s == verbs.QPSErr {
			q.to(s)
		}
		if got := q.state(); got != s {
			c.failf("the queue pair was moved to %v and is in %v", s, got)
		}
		return q
	}
	for _, s := range []verbs.QPState{verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD, verbs.QPSErr} {
		out[s] = mk(s)
	}
	return out
}

// All states and target states, and for each target the attributes that each step of the table
// requires, those less one, and those and one more.
func illegalTransitions(c *Case) {
	bases := []verbs.QPAttrMask{0, initMask &^ verbs.QPMState, rtrMask &^ verbs.QPMState, rtsMask &^ verbs.QPMState}
	var masks []verbs.QPAttrMask
	seen := map[verbs.QPAttrMask]bool{}
	for _, m := range bases {
		for b := verbs.QPAttrMask(2); b <= verbs.QPMRateLimit; b <<= 1 {
			for _, v := range []verbs.QPAttrMask{m, m ^ b} {
				if !seen[v] {
					seen[v] = true
					masks = append(masks, v)
				}
			}
		}
	}
	refused := 0
	for from, q := range stateQPs(c) {
		if from == verbs.QPSSQD {
			c.drained(q) // otherwise it would change by itself
		}
		before, err := q.Query()
		c.must(err, "query_qp")
		for to := verbs.QPSReset; to <= verbs.QPSErr; to++ {
			for _, m := range masks {
				if verbs.CheckTransition(verbs.QPTRC, from, to, m) == nil {
					continue
				}
				attr := verbs.QPAttr{
					State: to, CurState: from, PathMTU: q.o.mtu, DestQPN: 1, RQPSN: 5, SQPSN: 6, Port: q.end.ep.Port,
					AccessFlags: verbs.AccessRemoteRead, MaxRdAtomic: 1, MaxDestRdAtomic: 1, MinRNRTimer: 3, Timeout: 9,
					RetryCnt: 1, RNRRetry: 1, AH: verbs.AHAttr{DGID: c.B.gid, DLID: c.B.lid, Port: q.end.ep.Port, SGIDIndex: q.end.ep.GIDIndex},
				}
				err := q.Modify(&attr, m|verbs.QPMState)
				if !errors.Is(err, verbs.ErrInvalidTransition) {
					c.failf("%v to %v with %v answered %v", from, to, m, err)
				}
				refused++
			}
		}
		after, err := q.Query()
		c.must(err, "query_qp")
		if after != before {
			c.failf("refused transitions from %v changed the queue pair from %+v to %+v", from, before, after)
		}
	}
	if refused < 1000 {
		c.failf("only %d illegal transitions were tried", refused)
	}
}

func legalTransitions(c *Case) {
	q := c.A.newQP(c.defaults(), psnA)
	peer := Info{QPN: q.Num(), PSN: psnB, GID: c.B.gid, LID: c.B.lid}
	at := func(s verbs.QPState) {
		c.t.Helper()
		if got := q.state(); got != s {
			c.failf("the queue pair was moved to %v and is in %v", s, got)
		}
	}
	for range 2 { // RESET must make it as new
		at(verbs.QPSReset)
		q.to(verbs.QPSReset)
		q.toInit()
		at(verbs.QPSInit)
		c.must(q.Modify(&verbs.QPAttr{State: verbs.QPSInit, AccessFlags: fullAccess}, verbs.QPMState|verbs.QPMAccessFlags), "INIT to INIT")
		q.toRTR(peer)
		at(verbs.QPSRTR)
		q.toRTS()
		at(verbs.QPSRTS)
		c.must(q.Modify(&verbs.QPAttr{State: verbs.QPSRTS, MinRNRTimer: 5}, verbs.QPMState|verbs.QPMMinRNRTimer), "RTS to RTS")
		q.to(verbs.QPSSQD)
		at(verbs.QPSSQD)
		c.drained(q)
		c.must(q.Modify(&verbs.QPAttr{State: verbs.QPSSQD, Timeout: 12, RetryCnt: 3}, verbs.QPMState|verbs.QPMTimeout|verbs.QPMRetryCnt), "SQD to SQD")
		c.drained(q) // entering SQD again may drain again (rxe rxe_qp_sqd)
		q.to(verbs.QPSRTS)
		at(verbs.QPSRTS)
		q.to(verbs.QPSErr)
		at(verbs.QPSErr)
		q.to(verbs.QPSErr)
		q.to(verbs.QPSReset)
	}
	for s, q := range stateQPs(c) {
		if s != verbs.QPSReset {
			q.to(verbs.QPSErr)
		}
		q.to(verbs.QPSReset)
	}
}

// drained waits until the send queue of a queue pair in SQD has drained: before
// that a device may refuse every step but the one to ERR.
func (c *Case) drained(q *QP) {
	c.t.Helper()
	c.until("SQD must drain an empty send queue", func() bool { a, _ := q.Query(); return !a.SQDraining })
}

func queryReads(c *Case) {
	o := c.defaults()
	o.access, o.rdAtom, o.rnrTimer, o.timeout, o.retry, o.rnrRetry = verbs.AccessRemoteRead|verbs.AccessRemoteWrite, 1, 17, 15, 5, 3
	q := c.A.newQP(o, 0x123456)
	q.toInit()
	peer := Info{QPN: 0xabcdef, PSN: 0x654321, GID: c.B.gid, LID: c.B.lid}
	q.toRTR(peer)
	q.toRTS()
	g, err := q.Query()
	c.must(err, "query_qp")
	type set struct {
		state, cur                                    verbs.QPState
		mtu                                           verbs.MTU
		dest, rpsn, spsn                              uint32
		access                                        verbs.AccessFlags
		gid                                           verbs.GID
		rd, destRd, rnr, timeout, retry, rnrTry, port uint8
	}
	// SQPSN and RQPSN are those set: nothing was sent or received.
	got := set{g.State, g.CurState, g.PathMTU, g.DestQPN, g.RQPSN, g.SQPSN, g.AccessFlags &^ verbs.AccessLocalWrite, g.AH.DGID,
		g.MaxRdAtomic, g.MaxDestRdAtomic, g.MinRNRTimer, g.Timeout, g.RetryCnt, g.RNRRetry, g.Port}
	want := set{verbs.QPSRTS, verbs.QPSRTS, o.mtu, peer.QPN, peer.PSN, 0x123456, o.access, peer.GID,
		o.rdAtom, o.rdAtom, 17, 15, 5, 3, c.A.ep.Port}
	if got != want {
		c.failf("query_qp reads %+v, set was %+v", got, want)
	}
}

func badValues(c *Case) {
	peer := Info{QPN: 1, PSN: psnB, GID: c.B.gid, LID: c.B.lid}
	refused := func(what string, q *QP, a *verbs.QPAttr, m verbs.QPAttrMask, s verbs.QPState) {
		c.t.Helper()
		c.refused(q.Modify(a, m), "modify_qp with "+what, verbs.ErrInvalid, verbs.ErrInvalidTransition, syscall.EINVAL)
		if got := q.state(); got != s {
			c.failf("a refused modify_qp with %s moved the queue pair to %v", what, got)
		}
	}
	q := c.A.newQP(c.defaults(), psnA)
	for what, mod := range map[string]func(*verbs.QPAttr){
		"port 0":        func(a *verbs.QPAttr) { a.Port = 0 },
		"port 200":      func(a *verbs.QPAttr) { a.Port = 200 },
		"P_Key 40000":   func(a *verbs.QPAttr) { a.PKeyIndex = 40000 },
		"state 9":       func(a *verbs.QPAttr) { a.State = 9 },
		"state UNKNOWN": func(a *verbs.QPAttr) { a.State = verbs.QPSUnknown },
	} {
		a := q.initAttr()
		mod(a)
		refused(what, q, a, initMask, verbs.QPSReset)
	}
	q.toInit()
	for what, mod := range map[string]func(*verbs.QPAttr){
		"MTU 0":                  func(a *verbs.QPAttr) { a.PathMTU = 0 },
		"MTU 9":                  func(a *verbs.QPAttr) { a.PathMTU = 9 },
		"more rd_atomic":         func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 255 },
		"a missing GID":          func(a *verbs.QPAttr) { a.AH.SGIDIndex = 250 },
		"an MTU over the port's": func(a *verbs.QPAttr) { a.PathMTU = overMTU(c.pair.Caps.MTU) },
		"a missing port":         func(a *verbs.QPAttr) { a.AH.Port = 9 },
	} {
		a := q.rtrAttr(peer)
		mod(a)
		if what == "more rd_atomic" && c.pair.Caps.MaxRdAtom >= 255 || what == "an MTU over the port's" && a.PathMTU == c.pair.Caps.MTU {
			continue // there is no larger value
		}
		refused(what, q, a, rtrMask, verbs.QPSInit)
	}
	q.toRTR(peer)
	for what, mod := range map[string]func(*verbs.QPAttr){
		"retry_cnt 8": func(a *verbs.QPAttr) { a.RetryCnt = 8 },
		"rnr_retry 8": func(a *verbs.QPAttr) { a.RNRRetry = 8 },
		"timeout 32":  func(a *verbs.QPAttr) { a.Timeout = 32 },
	} {
		a := q.rtsAttr()
		mod(a)
		refused(what, q, a, rtsMask, verbs.QPSRTR)
	}
}

func qpNumbers(c *Case) {
	seen := map[uint32]bool{}
	for range 32 {
		q := c.A.newQP(c.defaults(), psnA)
		if q.Num() <= 1 || q.Num() > maxPSN || seen[q.Num()] {
			c.failf("queue pair number %#x is reserved, too large or used twice", q.Num())
		}
		seen[q.Num()] = true
	}
}

// overMTU returns the next path MTU above m; m itself if it is the last.
func overMTU(m verbs.MTU) verbs.MTU {
	switch {
	case m < verbs.MTU4096:
		return m + 1
	case m == verbs.MTU4096:
		return verbs.MTUJumbo
	}
	return m
}
