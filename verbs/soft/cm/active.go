package cm

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// ConnectParam is the parameters of Connect.
type ConnectParam struct {
	Dst                wire.Path
	ServiceID          uint64
	QPN                uint32
	PSN                uint32
	ResponderResources uint8
	InitiatorDepth     uint8
	RetryCount         uint8 // 0 to 7
	RNRRetry           uint8 // 0 to 7
	FlowControl        bool
	SRQ                bool
	XRC                bool      // the queue pair is of type XRC_SEND, for one of type XRC_RECV
	MTU                verbs.MTU // 0: the port's
	AckTimeout         uint8     // code, 0 to 31
	TrafficClass       uint8
	PKey               uint16
	ECE                verbs.ECE
	Private            []byte // at most PrivateREQ bytes
}

// Connect sends a REQ and returns the connection. The outcome is EvReply, EvRejected or
// EvUnreachable. The error is a *FieldError when a value does not fit; nothing was sent then.
func (m *Machine) Connect(now time.Duration, p *ConnectParam, user any) (*Conn, error) {
	mtu := p.MTU
	if mtu == 0 {
		mtu = m.mtuOf(p.Dst)
	}
	if mtu.Bytes() == 0 {
		return nil, &FieldError{Msg: "REQ", Field: "path MTU", Value: uint64(mtu), Want: "a path MTU", cause: ErrRange}
	}
	id := m.newID()
	here, lid, peerLID := m.cfg.GID, uint16(permissiveLID), uint16(permissiveLID)
	if p.Dst.Far() {
		here, lid, peerLID = p.Dst.Local, p.Dst.LocalPort, p.Dst.PeerPort
	}
	req := &REQ{
		TID: uint64(id)<<32 | m.cfg.Rand()&0xffffffff, LocalID: id,
		Vendor: p.ECE.Vendor, Options: p.ECE.Options, ServiceID: p.ServiceID, CAGUID: m.cfg.GUID,
		QPN: p.QPN, PSN: p.PSN, ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		RemoteTimeout: m.cfg.ResponseTimeout, LocalTimeout: m.cfg.ResponseTimeout,
		Transport: TransportRC, FlowControl: p.FlowControl, RetryCount: p.RetryCount, RNRRetry: p.RNRRetry,
		PKey: p.PKey, PathMTU: MTUCode(mtu), MaxCMRetries: m.cfg.MaxRetries, SRQ: p.SRQ,
		Primary: Path{
			LocalLID: lid, RemoteLID: peerLID,
			LocalGID: here, RemoteGID: p.Dst.Peer, HopLimit: roceHopLimit, AckTimeout: p.AckTimeout,
			TrafficClass: p.TrafficClass,
		},
	}
	if p.XRC {
		req.Transport, req.ExtTransport = TransportExt, ExtXRC
	}
	if err := setPrivate(AttrREQ, req.Private[:], p.Private); err != nil {
		return nil, err
	}
	c := &Conn{
		User: user, m: m, xrc: p.XRC, local: id, peer: p.Dst, lqpn: p.QPN, tid: req.TID,
		wait: codeTime(m.cfg.ResponseTimeout), maxRetries: m.cfg.MaxRetries,
	}
	if err := req.Put(&c.last); err != nil {
		return nil, err
	}
	m.byLocal[id] = c
	at := withoutLocal(c.peer)
	if m.asking[at] == nil {
		m.asking[at] = conns{}
	}
	m.asking[at][c] = struct{}{}
	m.stats.Sent++
	m.cfg.Send(c.peer, &c.last, false)
	c.await(now, StateREQSent)
	return c, nil
}

// Path values of a RoCE port: no LIDs (IB_LID_PERMISSIVE), and the hop limit of a routed packet. A path
// with UDP ports has them in place of the LIDs.
const (
	permissiveLID = 0xffff
	roceHopLimit  = 64
)

// withoutLocal returns a path without this end's address.
func withoutLocal(p wire.Path) wire.Path {
	p.Local = verbs.GID{}
	return p
}

// heard notes that the REQ of c was answered, or that c ends.
func (m *Machine) heard(c *Conn) {
	at := withoutLocal(c.peer)
	if delete(m.asking[at], c); len(m.asking[at]) == 0 {
		delete(m.asking, at)
	}
}

// Refused ends the requests by a path that met no socket at its other end. Which of this end's addresses
// it had is not known. quoted is the beginning of the datagram of one of them: systems report a few of many. Any
// stranger can have the system report such a path, so Refused looks at the requests by this path alone, and one must
// have the transaction ID that is quoted. A system that quotes less is not heard: requests then end by their retries.
func (m *Machine) Refused(p *wire.Path, quoted []byte) {
	if len(quoted) < offTID+8 {
		return
	}
	tid := binary.BigEndian.Uint64(quoted[offTID:])
	asked, known := m.asking[withoutLocal(*p)], false
	for c := range asked {
		known = known || c.state == StateREQSent && c.tid == tid
	}
	if !known {
		return
	}
	for c := range asked {
		if c.state != StateREQSent {
			continue
		}
		c.forget()
		c.emit(Event{Kind: EvRejected, REJ: &REJ{RemoteID: c.local, Answers: AnswersREQ, Reason: RejInvalidServiceID}})
	}
}

// setPrivate copies private data into its field.
func setPrivate(a Attr, dst, src []byte) error {
	if len(src) > len(dst) {
		return &FieldError{Msg: a.String(), Field: "private data length", Value: uint64(len(src)),
			Want: fmt.Sprintf("at most %d bytes", len(dst)), cause: ErrRange}
	}
	copy(dst, src)
	return nil
}

// onREP handles the peer's answer to a REQ.
func (m *Machine) onREP(now time.Duration, src wire.Path, rep *REP) bool {
	c := m.byLocal[rep.RemoteID]
	if m.timewait.hasID(rep.RemoteID) {
		return m.strayREP(src, rep, RejStaleConn)
	}
	if c == nil || c.peer != src || c.passive || rep.TID != c.tid {
		return m.strayREP(src, rep, RejInvalidCommID)
	}
	if c.remote != 0 {
		return c.repeatedREP(src, rep)
	}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
	default:
		return m.strayREP(src, rep, RejInvalidCommID)
	}
	if c.xrc { // kernel cm_msgs.h, cm_rep_get_qpn
		rep.QPN = rep.LocalEECN
	}
	if checkQPN(AttrREP, rep.QPN) != nil {
		return m.strayREP(src, rep, RejInvalidCommID)
	}
	key := remoteQP{src, rep.QPN}
	if old := m.byQPN[key]; old != nil || m.timewait.hasQP(src, rep.QPN) {
		// The peer's queue pair is in a connection that exists here: that one is stale, and this
		// answer is not trustworthy either. The REJ makes the peer forget the request, so it ends
		// here too: a repeated REQ would be a new one there.
		m.strayREP(src, rep, RejStaleConn)
		if old != nil {
			old.stale(now)
		}
		c.forget()
		c.emit(Event{Kind: EvRejected, REJ: &REJ{LocalID: c.local, Answers: AnswersREP, Reason: RejStaleConn}})
		return true
	}
	c.remote, c.rqpn = rep.LocalID, rep.QPN
	m.byQPN[key] = c
	m.heard(c)
	c.state = StateREPRcvd
	m.timers.set(c, now+c.wait/2) // the REQ promised an answer within c.wait
	c.emit(Event{Kind: EvReply, REP: rep})
	return true
}

func (c *Conn) repeatedREP(src wire.Path, rep *REP) bool {
	if c.remote != rep.LocalID {
		return c.m.strayREP(src, rep, RejInvalidCommID)
	}
	switch c.state {
	case StateEstablished: // last is the RTU
		c.repeat()
	case StateREPRcvd:
		c.sendMRA(AnswersREP)
		c.rest(StateMRAREPSent)
	case StateMRAREPSent:
		c.sendMRA(AnswersREP)
	case StateTimewait:
		return c.m.strayREP(src, rep, RejStaleConn)
	default: // DREQ_SENT, DREQ_RCVD: the peer knows or will
		return false
	}
	return true
}

// strayREP refuses a REP that no local connection waits for.
func (m *Machine) strayREP(src wire.Path, rep *REP, why Reason) bool {
	m.refuse(src, REJ{TID: rep.TID, LocalID: rep.RemoteID, RemoteID: rep.LocalID, Answers: AnswersREP, Reason: why})
	return true
}

// SendRTU establishes the connection from the active side, after EvReply. Data may be sent from now
// on.
//
// Between processes the RTU is sent again once, after the time in which an answer would have come: if the
// first is lost, the passive side may not send as many REPs as it would need, because the RTU is also what
// proves this address there (see amplification).
//
// Implements: RFC 9002, 6.2.2.1 (a client sends again until it knows that its address is proven), in part.
func (c *Conn) SendRTU(now time.Duration, private []byte) error {
	if c.state != StateREPRcvd && c.state != StateMRAREPSent {
		return &StateError{"SendRTU", c.state}
	}
	rtu := &RTU{TID: c.tid, LocalID: c.local, RemoteID: c.remote}
	if err := setPrivate(AttrRTU, rtu.Private[:], private); err != nil {
		return err
	}
	c.rest(StateEstablished)
	if c.peer.Far() {
		c.m.timers.set(c, now+c.wait)
	}
	return c.transmit(rtu)
}

// onMRA handles the peer's request to wait longer.
func (m *Machine) onMRA(now time.Duration, src wire.Path, mra *MRA) bool {
	c := m.byLocal[mra.RemoteID]
	if c == nil || c.peer != src || mra.TID != c.tid {
		return false
	}
	switch {
	case mra.Answers == AnswersREQ && c.state == StateREQSent:
		c.state = StateMRAREQRcvd
	case mra.Answers == AnswersREP && c.state == StateREPSent && c.remote == mra.LocalID:
		c.state = StateMRAREPRcvd
	default:
		return false
	}
	m.timers.set(c, now+c.wait+codeTime(mra.ServiceTimeout))
	return true
}
