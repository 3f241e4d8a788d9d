package verbstest

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

// udpID makes an identifier of port space UDP.
func (m *CM) udpID(userData uint64) verbs.CMID {
	m.c.t.Helper()
	id, err := m.ch.CreateID(verbs.PSUDP, userData)
	m.c.must(err, "create_id in port space UDP")
	m.owns(id)
	return id
}

// udpListen makes a listener of port space UDP on the end's address.
func (m *CM) udpListen() (verbs.CMID, netip.AddrPort) {
	m.c.t.Helper()
	id := m.udpID(0x77)
	m.c.must(id.Bind(netip.AddrPortFrom(m.end.addr, 0)), "bind_addr")
	m.c.must(id.Listen(8), "listen")
	return id, id.LocalAddr()
}

// udpResolved makes an identifier that knows its route to dst.
func (m *CM) udpResolved(dst netip.AddrPort) verbs.CMID {
	m.c.t.Helper()
	id := m.udpID(0)
	m.c.must(id.ResolveAddr(netip.AddrPortFrom(m.end.addr, 0), dst, resolveTimeout), "resolve_addr")
	m.take(verbs.CMAddrResolved)
	m.c.must(id.ResolveRoute(resolveTimeout), "resolve_route")
	m.take(verbs.CMRouteResolved)
	return id
}

// udQP makes the identifier's datagram queue pair, which the connection manager moves to RTS with
// the queue key of the port space.
func (m *CM) udQP(id verbs.CMID) *QP {
	m.c.t.Helper()
	e, o := m.end, m.c.defaults()
	o.kind = verbs.QPTUD
	q := &QP{c: m.c, end: e, o: o, scq: e.cq(o.sends, nil), rcq: e.cq(o.recvs, nil)}
	init := &verbs.QPInitAttr{SendCQ: q.scq.CQ, RecvCQ: q.rcq.CQ, Type: verbs.QPTUD, Cap: verbs.QPCap{
		MaxSendWR: uint32(o.sends), MaxRecvWR: uint32(o.recvs), MaxSendSGE: 1, MaxRecvSGE: 1}}
	m.c.must(id.CreateQP(e.pd, init), "rdma_create_qp of type UD")
	m.c.defers(id.Close)
	q.QP, q.cap = id.QP(), init.Cap
	return q
}

// handle makes an address handle from the attributes in an event.
func (e *End) handle(attr verbs.AHAttr) verbs.AH {
	e.c.t.Helper()
	ah, err := e.pd.CreateAH(&attr)
	e.c.must(err, "create_ah of the attributes of an event: %+v", attr)
	e.c.defers(ah.Close)
	return ah
}

// datagrams is an established pair of port space UDP.
type datagrams struct {
	ma, mb   *CM
	ida, idb verbs.CMID
	a, b     *QP
	request  verbs.CMEvent // CONNECT_REQUEST at B
	answer   verbs.CMEvent // ESTABLISHED at A
}

// ask makes A request the queue pair behind B's listener.
func (c *Case) ask(toB, toA string) *datagrams {
	c.t.Helper()
	k := &datagrams{ma: c.A.cm(), mb: c.B.cm()}
	_, at := k.mb.udpListen()
	k.ida = k.ma.udpResolved(at)
	k.a = k.ma.udQP(k.ida)
	c.must(k.ida.Connect(&verbs.ConnParam{PrivateData: []byte(toB), RetryCount: maxRetry}), "connect in port space UDP")
	k.request = k.mb.take(verbs.CMConnectRequest)
	k.idb = k.request.ID
	k.mb.owns(k.idb)
	k.b = k.mb.udQP(k.idb)
	c.must(k.idb.Accept(&verbs.ConnParam{PrivateData: []byte(toA), QPNum: k.b.Num()}), "accept in port space UDP")
	k.answer = k.ma.take(verbs.CMEstablished)
	return k
}
