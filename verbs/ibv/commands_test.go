//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: each end of a connection takes one command of the firmware for each state of its queue pair,
// and asks for none of them. The access that the peer gets is set on the way.
func TestAConnectionTakesACommandForEachState(t *testing.T) {
	r := newCMRig(t)
	moves, queries := r.null.Calls("ibv_modify_qp"), r.null.Calls("ibv_query_qp")
	e := r.connect([2]uint8{}, [2]uint8{})
	moves, queries = r.null.Calls("ibv_modify_qp")-moves, r.null.Calls("ibv_query_qp")-queries
	if moves != 2*3 || queries != 0 {
		t.Errorf("two ends were moved %d times and queried %d times, want INIT, RTR and RTS of each and no query", moves, queries)
	}
	for _, id := range []verbs.CMID{e.a, e.b} {
		if a := must.Get(id.QP().Query())(t); a.AccessFlags&verbs.AccessRemoteWrite == 0 {
			t.Errorf("%v grants %v, want REMOTE_WRITE", id, a.AccessFlags)
		}
	}
	moves, queries = r.null.Calls("ibv_modify_qp"), r.null.Calls("ibv_query_qp")
	must.Do(t, e.a.Disconnect())
	moves, queries = r.null.Calls("ibv_modify_qp")-moves, r.null.Calls("ibv_query_qp")-queries
	if moves != 1 || queries != 0 {
		t.Errorf("Disconnect moved %d times and queried %d times, want once and never", moves, queries)
	}
}

// Rule: a step is checked from the state that the device is in, also when it has gone to ERR by itself.
func TestAStepFromErrByItselfIsIllegal(t *testing.T) {
	r := newCMRig(t)
	e := r.connect([2]uint8{}, [2]uint8{})
	q := e.a.QP().(*queuePair)
	must.Do(t, q.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
	for _, stale := range []verbs.QPState{verbs.QPSRTS, verbs.QPSRTR} { // as if the device had moved it
		q.last = stale
		if err := q.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState|rtsFrom(stale)); !errors.Is(err, verbs.ErrInvalidTransition) {
			t.Errorf("a step from ERR, set to %v before: %v, want %v", stale, err, verbs.ErrInvalidTransition)
		}
	}
}

// rtsFrom returns the attributes that a step to RTS needs.
func rtsFrom(s verbs.QPState) verbs.QPAttrMask {
	if s == verbs.QPSRTS {
		return 0
	}
	return verbs.QPMTimeout | verbs.QPMRetryCnt | verbs.QPMRNRRetry | verbs.QPMSQPSN | verbs.QPMMaxQPRdAtomic
}

// Rule (ConnParam.HoldResponse): the event takes no step. Accept does, and establishes.
func TestAHeldResponseLeavesTheStepsToAccept(t *testing.T) {
	r := newCMRig(t)
	qp := func(id verbs.CMID) {
		must.Do(t, id.CreateQP(r.pd, &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	}
	a := r.routed(r.listener().LocalAddr().Port())
	qp(a)
	must.Do(t, a.Connect(&verbs.ConnParam{RetryCount: 5, HoldResponse: true}))
	b := r.event(verbs.CMConnectRequest).ID
	t.Cleanup(func() { _ = b.Close() })
	qp(b)
	must.Do(t, b.Accept(&verbs.ConnParam{PrivateData: []byte("welcome")}))
	if ev := r.event(verbs.CMConnectResponse); string(ev.Conn.PrivateData[:7]) != "welcome" {
		t.Errorf("CONNECT_RESPONSE has the private data %q, want welcome", ev.Conn.PrivateData)
	}
	if at := must.Get(a.QP().Query())(t); at.State != verbs.QPSInit {
		t.Errorf("after the event the queue pair is in %v, want INIT", at.State)
	}
	must.Do(t, a.Accept(&verbs.ConnParam{}))
	if at := must.Get(a.QP().Query())(t); at.State != verbs.QPSRTS || at.RetryCnt != 5 {
		t.Errorf("after Accept the queue pair is in %v with %d retries, want RTS and 5", at.State, at.RetryCnt)
	}
	r.event(verbs.CMEstablished) // the acceptor's
}

// Rule: on the profile mlx5_vf a command of the firmware takes 2 ms.
func TestCommandsOfAVirtualFunctionTakeTime(t *testing.T) {
	profiled(t, "mlx5_vf")
	r := newCMRig(t)
	qp := must.Get(r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	for what, call := range map[string]func() error{
		"a query":   func() error { _, err := qp.Query(); return err },
		"a step":    func() error { return qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState) },
		"a resize":  func() error { return r.cq.Resize(64) },
		"a destroy": qp.Close,
	} {
		if what == "a destroy" {
			defer func() { must.Do(t, call()) }()
			continue
		}
		from := time.Now()
		must.Do(t, call())
		if took := time.Since(from); took < 2*time.Millisecond {
			t.Errorf("%s took %v, want at least 2 ms", what, took)
		}
	}
}
