package verbstest

import (
	"github.com/verbena-rdma/verbena/verbs"
)

// Defaults of a case's queue pairs. The packet numbers start just below the wrap of 24 bits, so
// that each case that sends some packets crosses it.
const (
	defaultDepth = 16
	defaultSGE   = 1
	psnA         = 0xfffffd
	psnB         = 0x7ffffe
	// defaultTimeout is 537 ms. Eight of them are more than the emulated machine of a loaded host was seen
	// to leave a packet unanswered (1.1 s).
	defaultTimeout = 17
	// defaultRNRTimer is 0.64 ms.
	defaultRNRTimer = 12
	maxRetry        = 7
)

// opts are the properties of a case's queue pairs.
type opts struct {
	kind                       verbs.QPType // 0: RC
	sends, recvs, sges, inline int
	cqe                        int // of each queue; 0: just enough
	mtu                        verbs.MTU
	access                     verbs.AccessFlags
	rdAtom                     uint8
	timeout, retry             uint8
	rnrRetry, rnrTimer         uint8
	sigAll                     bool
	channel                    bool // completion queues with a channel each
	oneCQ                      bool // one queue for sends and receives
	scq, rcq                   *CQ  // given queues
	srq                        *SRQ // receives come from it
	qkey                       uint32
	pd                         verbs.PD
	stopB                      verbs.QPState // the last state of B
}

// QP is a queue pair of a case with its completion queues.
type QP struct {
	verbs.QP
	c        *Case
	end      *End
	o        opts
	cap      verbs.QPCap // granted
	psn      uint32
	scq, rcq *CQ
}

func (c *Case) defaults() opts {
	return opts{
		sends: defaultDepth, recvs: defaultDepth, sges: defaultSGE, mtu: c.pair.MTU, access: fullAccess,
		rdAtom: uint8(min(max(c.pair.Caps.MaxRdAtom, 0), 4)), timeout: defaultTimeout, retry: maxRetry,
		rnrRetry: verbs.RNRRetryInfinite, rnrTimer: defaultRNRTimer, stopB: verbs.QPSRTS,
	}
}

// kindOf returns the type of the queue pairs; RC unless a case sets another.
func (o *opts) kindOf() verbs.QPType {
	if o.kind == 0 {
		return verbs.QPTRC
	}
	return o.kind
}

// newQP makes a queue pair in RESET.
func (e *End) newQP(o opts, psn uint32) *QP {
	e.c.t.Helper()
	q := &QP{c: e.c, end: e, o: o, psn: psn, scq: o.scq, rcq: o.rcq}
	mk := func(n int) *CQ {
		var ch verbs.CompChannel
		if o.channel {
			ch = e.channel()
		}
		if o.cqe > 0 {
			n = o.cqe
		}
		return e.cq(n, ch)
	}
	if q.scq == nil && o.oneCQ {
		q.scq = mk(o.sends + o.recvs)
		q.rcq = q.scq
	}
	if q.scq == nil {
		q.scq = mk(o.sends)
	}
	if q.rcq == nil {
		q.rcq = mk(o.recvs)
	}
	pd := o.pd
	if pd == nil {
		pd = e.pd
	}
	init := &verbs.QPInitAttr{
		SendCQ: q.scq.CQ, RecvCQ: q.rcq.CQ, Type: o.kindOf(), SQSigAll: o.sigAll, Windows: true,
		Cap: verbs.QPCap{
			MaxSendWR: uint32(o.sends), MaxRecvWR: uint32(o.recvs), MaxSendSGE: uint32(o.sges),
			MaxRecvSGE: uint32(o.sges), MaxInlineData: uint32(o.inline),
		},
	}
	if o.srq != nil {
		init.SRQ = o.srq.SRQ
	}
	if o.kind == verbs.QPTXRCSend { // it receives nothing
		init.RecvCQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = nil, 0, 0
	}
	qp, err := pd.CreateQP(init)
	e.c.must(err, "create_qp of type %v", init.Type)
	e.c.defers(qp.Close)
	q.QP, q.cap = qp, init.Cap
	return q
}

// link makes two RC queue pairs and connects them by hand.
func (c *Case) link(mod ...func(*opts)) (a, b *QP) {
	c.t.Helper()
	o := c.defaults()
	for _, m := range mod {
		m(&o)
	}
	a, b = c.A.newQP(o, psnA), c.B.newQP(o, psnB)
	c.connect(a, b)
	return a, b
}

// connect moves a to RTS and b up to its stopB.
func (c *Case) connect(a, b *QP) {
	c.t.Helper()
	forA, forB, err := c.pair.Exchange.Exchange(a.info(), b.info())
	c.must(err, "exchanging connection records")
	a.toInit()
	a.toRTR(forA)
	a.toRTS()
	if b.o.stopB >= verbs.QPSInit {
		b.toInit()
	}
	if b.o.stopB >= verbs.QPSRTR {
		b.toRTR(forB)
	}
	if b.o.stopB >= verbs.QPSRTS {
		b.toRTS()
	}
}

func (q *QP) info() Info { return Info{QPN: q.Num(), PSN: q.psn, GID: q.end.gid, LID: q.end.lid} }

// to moves the queue pair to a state that requires no attribute.
func (q *QP) to(s verbs.QPState) {
	q.c.t.Helper()
	q.c.must(q.Modify(&verbs.QPAttr{State: s}, verbs.QPMState), "modify_qp to %v", s)
}

// state returns the state that a query reads.
func (q *QP) state() verbs.QPState {
	q.c.t.Helper()
	a, err := q.Query()
	q.c.must(err, "query_qp")
	return a.State
}

// untilState waits for a state.
func (q *QP) untilState(s verbs.QPState) {
	q.c.t.Helper()
	q.c.until(q.end.name+"'s queue pair must reach "+s.String(), func() bool { return q.state() == s })
}
