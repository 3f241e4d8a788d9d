package verbstest

import "github.com/verbena-rdma/verbena/verbs"

var xrcOnly = needs{kinds: []verbs.QPType{verbs.QPTXRCSend, verbs.QPTXRCRecv}, caps: verbs.CapXRC, srq: true, ops: verbs.Opcodes(verbs.WRSend)}

// xrcd opens a private domain.
func (e *End) xrcd() verbs.XRCD {
	e.c.t.Helper()
	x, err := e.ctx.OpenXRCD(-1, 0)
	e.c.must(err, "open_xrcd")
	e.c.defers(x.Close)
	return x
}

// xsrq makes an XRC shared receive queue that completes to cq.
func (e *End) xsrq(x verbs.XRCD, cq *CQ, n int) *SRQ {
	e.c.t.Helper()
	return e.srqOf(verbs.SRQAttr{MaxWR: uint32(n), MaxSGE: 1, XRCD: x, CQ: cq.CQ})
}

// xrecv makes the receiving end in a domain, in RESET.
func (e *End) xrecv(x verbs.XRCD) *QP {
	e.c.t.Helper()
	o := e.c.defaults()
	o.kind = verbs.QPTXRCRecv
	qp, err := x.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTXRCRecv, UserData: 0x5e})
	e.c.must(err, "create_qp of type XRC_RECV")
	e.c.defers(qp.Close)
	return &QP{QP: qp, c: e.c, end: e, o: o, psn: psnB}
}

// xrcLink connects a sender of A with a receiver of a domain of B.
func (c *Case) xrcLink(x verbs.XRCD, mod ...func(*opts)) (a, b *QP) {
	c.t.Helper()
	o := c.defaults()
	o.kind = verbs.QPTXRCSend
	for _, m := range mod {
		m(&o)
	}
	a, b = c.A.newQP(o, psnA), c.B.xrecv(x)
	b.o.access = o.access
	c.connect(a, b)
	return a, b
}

// xrcPair is a linked pair with one shared queue of n receives.
func (c *Case) xrcPair(n int, mod ...func(*opts)) (a, b *QP, s *SRQ, cq *CQ, x verbs.XRCD) {
	c.t.Helper()
	x = c.B.xrcd()
	cq = c.B.cq(2*n, nil)
	s = c.B.xsrq(x, cq, n)
	a, b = c.xrcLink(x, mod...)
	return a, b, s, cq, x
}

// at returns the request with a shared queue as its destination.
func (r SR) at(s *SRQ) SR { r.srqn = s.Num(); return r }
