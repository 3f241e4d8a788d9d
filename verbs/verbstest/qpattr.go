package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// The attributes of each step of an RC queue pair.
const (
	initMask = verbs.QPMState | verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMAccessFlags
	rtrMask  = verbs.QPMState | verbs.QPMAV | verbs.QPMPathMTU | verbs.QPMDestQPN | verbs.QPMRQPSN |
		verbs.QPMMaxDestRdAtomic | verbs.QPMMinRNRTimer
	rtsMask = verbs.QPMState | verbs.QPMTimeout | verbs.QPMRetryCnt | verbs.QPMRNRRetry | verbs.QPMSQPSN |
		verbs.QPMMaxQPRdAtomic
)

// steps returns the attributes with which a queue pair of the type goes to INIT, RTR and RTS
// (IBTA 11.2.5.2).
func steps(k verbs.QPType) (init, rtr, rts verbs.QPAttrMask) {
	const responder = verbs.QPMMaxDestRdAtomic | verbs.QPMMinRNRTimer
	switch k {
	case verbs.QPTUC:
		return initMask, rtrMask &^ responder, verbs.QPMState | verbs.QPMSQPSN
	case verbs.QPTUD:
		return initMask&^verbs.QPMAccessFlags | verbs.QPMQKey, verbs.QPMState, verbs.QPMState | verbs.QPMSQPSN
	case verbs.QPTXRCSend:
		return initMask, rtrMask &^ responder, rtsMask
	case verbs.QPTXRCRecv:
		return initMask, rtrMask, verbs.QPMState | verbs.QPMTimeout | verbs.QPMSQPSN
	}
	return initMask, rtrMask, rtsMask
}

func (q *QP) initAttr() *verbs.QPAttr {
	return &verbs.QPAttr{State: verbs.QPSInit, Port: q.end.ep.Port, AccessFlags: q.o.access, QKey: q.o.qkey}
}

func (q *QP) rtrAttr(peer Info) *verbs.QPAttr {
	return &verbs.QPAttr{
		State: verbs.QPSRTR, PathMTU: q.o.mtu, DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestRdAtomic: q.o.rdAtom, MinRNRTimer: q.o.rnrTimer,
		AH: verbs.AHAttr{DGID: peer.GID, DLID: peer.LID, SGIDIndex: q.end.ep.GIDIndex, HopLimit: 64, Port: q.end.ep.Port},
	}
}

func (q *QP) rtsAttr() *verbs.QPAttr {
	return &verbs.QPAttr{
		State: verbs.QPSRTS, Timeout: q.timeout(), RetryCnt: q.o.retry, RNRRetry: q.o.rnrRetry,
		SQPSN: q.psn, MaxRdAtomic: q.o.rdAtom,
	}
}

func (q *QP) toInit() {
	q.c.t.Helper()
	m, _, _ := steps(q.o.kindOf())
	q.c.must(q.Modify(q.initAttr(), m), "RESET to INIT")
}

func (q *QP) toRTR(peer Info) {
	q.c.t.Helper()
	if q.c.pair.Caps.CMOnly {
		q.c.skipped = "queue pairs are connected by the connection manager alone"
		q.c.t.SkipNow()
	}
	_, m, _ := steps(q.o.kindOf())
	q.c.must(q.Modify(q.rtrAttr(peer), m), "INIT to RTR")
}

func (q *QP) toRTS() {
	q.c.t.Helper()
	_, _, m := steps(q.o.kindOf())
	q.c.must(q.Modify(q.rtsAttr(), m), "RTR to RTS")
}

// timeout returns the local ACK timeout: that of the options, unless the pair needs a longer one.
func (q *QP) timeout() uint8 {
	if q.o.timeout == 0 { // for ever
		return 0
	}
	return max(q.o.timeout, q.c.pair.MinTimeout)
}
