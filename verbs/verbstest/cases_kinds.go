package verbstest

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

var kindCases = func() (out []Spec) {
	for _, k := range []verbs.QPType{verbs.QPTUC, verbs.QPTUD, verbs.QPTXRCSend} {
		n := needs{kinds: []verbs.QPType{k}}
		name := map[verbs.QPType]string{verbs.QPTUC: "uc", verbs.QPTUD: "ud", verbs.QPTXRCSend: "xrc_send"}[k]
		out = append(out,
			Spec{Name: name + "_illegal_transitions_are_refused_and_change_nothing", Rule: "IBTA 11.2.5.2; ib_modify_qp_is_ok", needs: n, run: func(c *Case) { kindIllegal(c, k) }},
			Spec{Name: name + "_legal_transitions_are_taken", Rule: "IBTA 10.3.1, figure 124", needs: n, run: func(c *Case) { kindLegal(c, k) }})
	}
	return out
}()

func kindIllegal(c *Case, k verbs.QPType) {
	o := c.defaults()
	o.kind, o.qkey = k, udKey
	init, rtr, rts := steps(k)
	refused := 0
	for _, from := range []verbs.QPState{verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSErr} {
		q := c.A.newQP(o, psnA)
		q.upTo(from, Info{QPN: 2, PSN: psnB, GID: c.B.gid, LID: c.B.lid})
		before, err := q.Query()
		c.must(err, "query_qp")
		for to := verbs.QPSReset; to <= verbs.QPSErr; to++ {
			for _, base := range []verbs.QPAttrMask{verbs.QPMState, init, rtr, rts} {
				for bit := verbs.QPAttrMask(2); bit <= verbs.QPMDestQPN; bit <<= 1 {
					m := base ^ bit
					if verbs.CheckTransition(k, from, to, m) == nil {
						continue
					}
					attr := *q.rtrAttr(Info{QPN: 2, PSN: psnB, GID: c.B.gid, LID: c.B.lid})
					attr.State, attr.CurState, attr.SQPSN, attr.Port, attr.QKey = to, from, 6, q.end.ep.Port, udKey
					attr.Timeout, attr.RetryCnt, attr.MaxRdAtomic = 9, 1, 1
					if err := q.Modify(&attr, m); !errors.Is(err, verbs.ErrInvalidTransition) {
						c.failf("%v to %v with %v answered %v", from, to, m, err)
					}
					refused++
				}
			}
		}
		if after, err := q.Query(); err != nil || after != before {
			c.failf("refused transitions from %v changed the queue pair from %+v to %+v (%v)", from, before, after, err)
		}
	}
	if refused < 500 {
		c.failf("only %d illegal transitions were tried", refused)
	}
}

// upTo moves a new queue pair to a state.
func (q *QP) upTo(s verbs.QPState, peer Info) {
	q.c.t.Helper()
	if s == verbs.QPSReset {
		return
	}
	q.toInit()
	if s == verbs.QPSErr {
		q.to(s)
		return
	}
	if s >= verbs.QPSRTR {
		q.toRTR(peer)
	}
	if s >= verbs.QPSRTS {
		q.toRTS()
	}
}

func kindLegal(c *Case, k verbs.QPType) {
	o := c.defaults()
	o.kind, o.qkey = k, udKey
	q := c.A.newQP(o, psnA)
	at := func(want verbs.QPState) {
		c.t.Helper()
		if got := q.state(); got != want {
			c.failf("the queue pair was moved to %v and is in %v", want, got)
		}
	}
	if q.Type() != k {
		c.failf("a queue pair of type %v says it is %v", k, q.Type())
	}
	for range 2 { // RESET must make it as new
		at(verbs.QPSReset)
		q.toInit()
		at(verbs.QPSInit)
		q.toRTR(Info{QPN: 2, PSN: psnB, GID: c.B.gid, LID: c.B.lid})
		at(verbs.QPSRTR)
		q.toRTS()
		at(verbs.QPSRTS)
		q.to(verbs.QPSSQD)
		c.until(fmt.Sprintf("SQD of a %v queue pair must drain an empty send queue", k), func() bool { a, _ := q.Query(); return !a.SQDraining })
		q.to(verbs.QPSRTS)
		at(verbs.QPSRTS)
		q.to(verbs.QPSErr)
		at(verbs.QPSErr)
		q.to(verbs.QPSReset)
	}
}
