package verbstest

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// resolveTimeout bounds the resolving of an address and a route.
const resolveTimeout = 2 * time.Second

// CM is one end's connection channel in a case.
type CM struct {
	c   *Case
	end *End
	ch  verbs.CMChannel
	ids []verbs.CMID
}

func (e *End) cm() *CM {
	e.c.t.Helper()
	ch, err := e.ep.Provider.CreateCMChannel()
	e.c.must(err, "create_event_channel")
	m := &CM{c: e.c, end: e, ch: ch}
	e.c.defers(ch.Close)
	return m
}

// id makes an identifier.
func (m *CM) id(userData uint64) verbs.CMID {
	m.c.t.Helper()
	id, err := m.ch.CreateID(verbs.PSTCP, userData)
	m.c.must(err, "create_id")
	m.owns(id)
	return id
}

// owns closes the identifier at the end. Events that were not taken are dropped with it.
func (m *CM) owns(id verbs.CMID) {
	m.ids = append(m.ids, id)
	m.c.defers(id.Close)
}

// event waits for the next event of the channel and checks its type. The caller must acknowledge
// it.
func (m *CM) event(want verbs.CMEventType) verbs.CMEvent {
	m.c.t.Helper()
	var ev verbs.CMEvent
	m.c.until("the event "+want.String()+" at "+m.end.name, func() bool {
		e, ok, err := m.ch.GetEvent()
		m.c.must(err, "get_cm_event")
		if ok {
			ev = e
		}
		return ok
	})
	if ev.Type != want {
		got := ev.Type
		status := ev.Status
		m.ch.Ack(ev)
		m.c.failf("%s got the event %v (status %d), want %v", m.end.name, got, status, want)
	}
	return ev
}

// take waits for an event, copies it and acknowledges it.
func (m *CM) take(want verbs.CMEventType) verbs.CMEvent {
	m.c.t.Helper()
	ev := m.event(want)
	ev.Conn.PrivateData = append([]byte{}, ev.Conn.PrivateData...)
	m.ch.Ack(ev)
	return ev
}

// quiet checks that no event comes.
func (m *CM) quiet(why string) {
	m.c.t.Helper()
	m.c.settle()
	if ev, ok, _ := m.ch.GetEvent(); ok {
		m.ch.Ack(ev)
		m.c.failf("%s, but %s got the event %v", why, m.end.name, ev.Type)
	}
}

// listen makes a listener on the end's address.
func (m *CM) listen(userData uint64) (verbs.CMID, netip.AddrPort) {
	m.c.t.Helper()
	id := m.id(userData)
	m.c.must(id.Bind(netip.AddrPortFrom(m.end.addr, 0)), "bind_addr")
	m.c.must(id.Listen(8), "listen")
	at := id.LocalAddr()
	if at.Addr() != m.end.addr || at.Port() == 0 {
		m.c.failf("a listener bound to %v, port 0, is at %v", m.end.addr, at)
	}
	return id, at
}

// resolved makes an identifier that knows its route to dst.
func (m *CM) resolved(dst netip.AddrPort) verbs.CMID {
	m.c.t.Helper()
	return m.resolvedWith(dst, 0, 0)
}

// setAckTimeout sets an identifier's ACK timeout; 0: no change.
func (m *CM) setAckTimeout(id verbs.CMID, code uint8) {
	m.c.t.Helper()
	if code != 0 {
		m.c.must(id.SetAckTimeout(code), "set_option of an ACK timeout with code %d", code)
	}
}

// resolvedWith is resolved with an ACK timeout and a type of service; 0 means the connection manager's own.
func (m *CM) resolvedWith(dst netip.AddrPort, ackTimeout, tos uint8) verbs.CMID {
	m.c.t.Helper()
	id := m.id(0)
	m.c.must(id.ResolveAddr(netip.AddrPortFrom(m.end.addr, 0), dst, resolveTimeout), "resolve_addr")
	m.take(verbs.CMAddrResolved)
	if got, want := id.Device(), m.end.ctx.Device().Name; got != want {
		m.c.failf("an identifier with the source address of %s is on device %q", want, got)
	}
	m.setAckTimeout(id, ackTimeout)
	if tos != 0 {
		m.c.must(id.SetTOS(tos), "set_option of type of service 0x%02x", tos)
	}
	m.c.must(id.ResolveRoute(resolveTimeout), "resolve_route")
	m.take(verbs.CMRouteResolved)
	return id
}

// qp makes the identifier's queue pair.
func (m *CM) qp(id verbs.CMID) *QP {
	m.c.t.Helper()
	e, o := m.end, m.c.defaults()
	q := &QP{c: m.c, end: e, o: o, scq: e.cq(o.sends, nil), rcq: e.cq(o.recvs, nil)}
	init := &verbs.QPInitAttr{SendCQ: q.scq.CQ, RecvCQ: q.rcq.CQ, Type: verbs.QPTRC, Cap: verbs.QPCap{
		MaxSendWR: uint32(o.sends), MaxRecvWR: uint32(o.recvs), MaxSendSGE: 1, MaxRecvSGE: 1}}
	m.c.must(id.CreateQP(e.pd, init), "rdma_create_qp")
	// The queues close after the identifier, which destroys the queue pair.
	m.c.defers(id.Close)
	q.QP, q.cap = id.QP(), init.Cap
	return q
}

// connParam returns the parameters that the ends request.
func (c *Case) connParam(private string) *verbs.ConnParam {
	n := uint8(min(max(c.pair.Caps.MaxRdAtom, 0), 4))
	return &verbs.ConnParam{PrivateData: []byte(private), ResponderResources: n, InitiatorDepth: n, RetryCount: maxRetry, RNRRetryCount: verbs.RNRRetryInfinite}
}

// conn is an established connection.
type conn struct {
	ma, mb *CM
	ida    verbs.CMID
	idb    verbs.CMID
	a, b   *QP
	// ackTimeout are the values that A and B set, if not 0; retries are the retry counts of both,
	// if one is not 0.
	ackTimeout, retries [2]uint8
	tos                 uint8         // the type of service that A sets, if not 0
	atA                 verbs.CMEvent // ESTABLISHED at A
	request             verbs.CMEvent // CONNECT_REQUEST at B
}

// param returns the parameters of A (0) or B (1).
func (k *conn) param(end int, private string) *verbs.ConnParam {
	p := k.ma.c.connParam(private)
	if r := k.retries[end]; r != 0 {
		p.RetryCount = r
	}
	return p
}

// dial connects A to B through a listener.
func (c *Case) dial(toB, toA string) *conn {
	c.t.Helper()
	k := &conn{ma: c.A.cm(), mb: c.B.cm()}
	_, at := k.mb.listen(0x77)
	c.dialTo(k, at, toB, toA)
	return k
}

// dialTo connects A to a listener of B.
func (c *Case) dialTo(k *conn, at netip.AddrPort, toB, toA string) {
	c.t.Helper()
	k.ida = k.ma.resolvedWith(at, k.ackTimeout[0], k.tos)
	k.a = k.ma.qp(k.ida)
	c.must(k.ida.Connect(k.param(0, toB)), "connect")
	k.request = k.mb.take(verbs.CMConnectRequest)
	k.idb = k.request.ID
	k.mb.owns(k.idb)
	k.b = k.mb.qp(k.idb)
	k.mb.setAckTimeout(k.idb, k.ackTimeout[1])
	c.must(k.idb.Accept(k.param(1, toA)), "accept")
	k.atA = k.ma.take(verbs.CMEstablished)
	k.mb.take(verbs.CMEstablished)
}
