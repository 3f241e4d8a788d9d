package verbstest

import (
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// grhSize is the number of bytes before the payload of a received datagram, whether they are
// meaningful or not.
const grhSize = 40

// udKey is the Q_Key of a case's datagram queue pairs.
const udKey = 0x11223344

var (
	udOnly = needs{kinds: []verbs.QPType{verbs.QPTUD}, ah: true, ops: verbs.Opcodes(verbs.WRSend)}
	udImm  = needs{kinds: []verbs.QPType{verbs.QPTUD}, ah: true, ops: verbs.Opcodes(verbs.WRSendWithImm)}
	ucSend = needs{kinds: []verbs.QPType{verbs.QPTUC}, ops: verbs.Opcodes(verbs.WRSend)}
	ucAll  = needs{kinds: []verbs.QPType{verbs.QPTUC}, ops: verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm)}
)

// with returns the requirements with the changes of m.
func (n needs) with(m func(*needs)) needs { m(&n); return n }

// ud makes a datagram queue pair in RTS.
func (e *End) ud(mod ...func(*opts)) *QP {
	e.c.t.Helper()
	o := e.c.defaults()
	o.kind, o.qkey = verbs.QPTUD, udKey
	for _, m := range mod {
		m(&o)
	}
	q := e.newQP(o, psnA)
	q.toInit()
	q.toRTR(Info{})
	q.toRTS()
	return q
}

// ah makes an address handle for a port.
func (e *End) ah(to verbs.GID) verbs.AH {
	e.c.t.Helper()
	ah, err := e.tryAH(to)
	e.c.must(err, "create_ah to %v", to)
	return ah
}

func (e *End) tryAH(to verbs.GID) (verbs.AH, error) {
	ah, err := e.pd.CreateAH(e.ahAttr(to))
	if err == nil {
		e.c.defers(ah.Close)
	}
	return ah, err
}

func (e *End) ahAttr(to verbs.GID) *verbs.AHAttr {
	a := &verbs.AHAttr{DGID: to, SGIDIndex: e.ep.GIDIndex, HopLimit: 64, Port: e.ep.Port}
	for _, end := range []*End{e.c.A, e.c.B} {
		if end != nil && end.gid == to {
			a.DLID = end.lid
		}
	}
	return a
}

// arrives waits until B has what A has sent: a datagram sent now does not overtake it. A device that hands
// packets to tasks of its queue pairs has time to run these.
func (c *Case) arrives() {
	a, b, ah := c.udPair()
	b.recv(RR{id: 1, sg: sg(c.B.region(grhSize + 8).all())})
	a.send(sendOf(1, c.A.region(8).all()).to(ah, b.Num(), udKey))
	b.rcq.one()
	a.scq.one()
	c.settle()
}

// udPair returns a datagram queue pair at each end, and A's address handle for B.
func (c *Case) udPair(mod ...func(*opts)) (a, b *QP, ah verbs.AH) {
	c.t.Helper()
	return c.A.ud(mod...), c.B.ud(mod...), c.A.ah(c.B.gid)
}

// datagram checks a received datagram: n bytes after the 40.
func (q *QP) datagram(w verbs.WC, id uint64, n int, from *QP) {
	q.c.t.Helper()
	q.received(w, id, verbs.WCRecv, grhSize+n)
	if w.SrcQP != from.Num() {
		q.c.failf("a datagram of QP %#x says that it came from QP %#x", from.Num(), w.SrcQP)
	}
}

// maxDatagram returns the largest payload of one datagram on the pair's link.
func (c *Case) maxDatagram() int { return int(min(c.pair.Caps.MTU, verbs.MTU4096).Bytes()) }

// addressIn returns the sender's address in the 40 bytes: in a GRH at byte 8; in the IPv4 header
// that RoCE v2 leaves in the last 20, at byte 12 of it (rxe execute; ibv_create_ah_from_wc reads
// it so).
func addressIn(grh []byte, t verbs.GIDType, gid verbs.GID) []byte {
	if a := gid.Addr(); t == verbs.GIDRoCEv2 && a.Is4() {
		return grh[20+12 : 20+16]
	}
	return grh[8:24]
}

// addressOf returns the expected bytes of the sender's address.
func addressOf(t verbs.GIDType, gid verbs.GID) []byte {
	if a := gid.Addr(); t == verbs.GIDRoCEv2 && a.Is4() {
		return a.AsSlice()
	}
	return gid[:]
}

// withinGRH checks that the 40 bytes name the sender, if the completion marks them as valid.
func (c *Case) withinGRH(at *End, w verbs.WC, grh []byte, from *End) {
	c.t.Helper()
	port, err := at.ctx.QueryPort(at.ep.Port)
	c.must(err, "query_port")
	if w.Flags&verbs.WCWithGRH == 0 {
		if port.LinkLayer == verbs.LinkEthernet {
			c.failf("a datagram that came over Ethernet has no GRH flag: %s", show(w))
		}
		return
	}
	e, err := from.ctx.QueryGIDEntry(from.ep.Port, int(from.ep.GIDIndex))
	c.must(err, "query_gid_ex")
	if got, want := addressIn(grh, e.Type, from.gid), addressOf(e.Type, from.gid); !slices.Equal(got, want) {
		c.failf("the 40 bytes % x name %v as the sender, it was %v", grh, got, want)
	}
	if e.Type != verbs.GIDRoCEv2 {
		return
	}
	a, err := verbs.InitAHFromGRH(grh, at.ep.Port, at.ep.GIDIndex)
	if c.must(err, "the way back that the 40 bytes % x tell", grh); a.DGID != from.gid {
		c.failf("the 40 bytes % x lead back to %v, the sender was %v", grh, a.DGID, from.gid)
	}
}
