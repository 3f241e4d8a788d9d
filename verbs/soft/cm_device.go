package soft

import (
	crand "crypto/rand"
	"io"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// deviceCM is the connection management of a device. It runs during Progress and in exclusive
// sections, like the engine itself, and has no lock.
type deviceCM struct {
	dev     *device
	machine *cm.Machine
	random  *rand.ChaCha8        // seeded at first use
	byQP    map[*queuePair]*cmID // finds the identifier when a queue pair gets its first packet
	bound   idSet                // identifiers of this device
}

// startCM connects the connection management to a new device. c has been validated.
func (d *device) startCM(c CMConfig) {
	m := &deviceCM{dev: d, byQP: map[*queuePair]*cmID{}}
	machine, err := cm.New(c.machine(cm.Config{
		GID: d.gid, GUID: d.guid, MTU: d.cfg.MTU, FarMTU: d.farMTU,
		Inside: func(p wire.Path) bool { return d.provider.fab.Has(p.Peer) },
		Send:   func(dst wire.Path, mad *cm.MAD, stranger bool) { d.sendMAD(dst, mad[:], stranger) },
		Event:  m.event,
		Rand:   m.draw,
	}))
	if err != nil {
		panic(err) // CMConfig.validate has accepted it
	}
	m.machine = machine
	d.cm = m
	d.onProgress = machine.Progress
	d.onRefused = func(path *wire.Path, quoted []byte) {
		var h wire.Header
		if n, err := wire.Parse(quoted, &h); err == nil && h.Opcode == wire.UDSendOnly {
			machine.Refused(path, quoted[n:])
		}
	}
	d.onMAD = func(now time.Duration, src wire.Path, mad []byte) {
		if machine.Receive(now, src, mad) != nil {
			d.p.CountMalformed()
		}
	}
	d.onCommEst = func(q *queuePair) {
		if id := m.byQP[q]; id != nil && id.conn != nil {
			id.conn.Established()
		}
	}
}

// proves reports whether the connection manager has proven the address of the peer when the queue pair enters RTS: the
// peer has answered a request. The request of a peer may be forged, and queuePair.prove is called when such a
// connection is established. What a program has told by other means is proven by the first packet.
func (m *deviceCM) proves(q *queuePair) bool {
	id := m.byQP[q]
	return id != nil && id.req == nil
}

// connect asks for a socket for a path alone, if it has UDP ports; nil: it has none.
func (d *device) connect(p *wire.Path) {
	if l := d.link.Load(); l != nil && p != nil {
		l.Connect(p)
	}
}

// draw returns 64 unpredictable bits. The generator is seeded from the fabric, so that a run in
// virtual time is repeatable. If that source fails, the system's source, which cannot fail, seeds
// it.
func (m *deviceCM) draw() uint64 {
	if m.random == nil {
		var seed [32]byte
		if _, err := io.ReadFull(m.dev.random, seed[:]); err != nil {
			_, _ = crand.Read(seed[:]) // documented never to fail
		}
		m.random = rand.NewChaCha8(seed)
	}
	return m.random.Uint64()
}

// psn returns an unpredictable packet sequence number.
func (m *deviceCM) psn() uint32 { return uint32(m.draw()) & max24 }

// drop forgets a queue pair.
func (m *deviceCM) drop(q *queuePair) { delete(m.byQP, q) }

// event translates an event of a connection into an event of its identifier. It runs during
// Progress.
func (m *deviceCM) event(e cm.Event) {
	switch e.Kind {
	case cm.EvRequest:
		m.request(e)
		return
	case cm.EvSIDRRequest:
		m.question(e)
		return
	}
	id := e.Conn.User.(*cmID)
	switch e.Kind {
	case cm.EvReply:
		id.onReply(m.dev.p.Now(), e.REP)
	case cm.EvEstablished:
		if id.qp != nil {
			id.qp.prove()
		}
		id.become(idEstablished)
		id.report(verbs.CMEvent{Type: verbs.CMEstablished})
	case cm.EvRejected:
		id.onRejected(m.dev.p.Now(), e.REJ)
	case cm.EvUnreachable:
		id.end(verbs.CMEvent{Type: verbs.CMUnreachable, Status: -int(syscall.ETIMEDOUT)})
	case cm.EvDisconnected:
		ev := verbs.CMEvent{Type: verbs.CMDisconnected}
		if e.Timeout {
			ev.Status = -int(syscall.ETIMEDOUT)
		}
		if e.Conn.State() == cm.StateDREQRcvd {
			_ = e.Conn.SendDREP(m.dev.p.Now(), nil) // the state allows it
		}
		// Disconnect breaks the queue pair, not this: acknowledgements may still be in flight.
		id.become(idEnded)
		id.report(ev)
	case cm.EvSIDRReply:
		id.answered(e.SIDRREP)
	case cm.EvTimewaitExit:
		id.report(verbs.CMEvent{Type: verbs.CMTimewaitExit})
	}
}

// request makes an identifier for a connection request and queues CONNECT_REQUEST.
func (m *deviceCM) request(e cm.Event) {
	q := e.REQ
	m.ask(e, &q.Private, verbs.CMEvent{Conn: verbs.ConnParam{
		PrivateData: q.Private[e.Listener.User.(*cmID).headerSize():],
		// Resources that the peer serves are depth for this side, and the reverse.
		ResponderResources: q.InitiatorDepth, InitiatorDepth: q.ResponderResources,
		FlowControl: q.FlowControl, RetryCount: q.RetryCount, RNRRetryCount: q.RNRRetry, SRQ: q.SRQ, QPNum: q.QPN,
	}})
}

// ask makes an identifier for a connection or SIDR request whose private data begins with head,
// and queues ev as CONNECT_REQUEST. A peer may name any service: ask refuses a request that is
// not of the listener's kind, as cma_ib_check_req_qp_type (kernel cma.c) does.
func (m *deviceCM) ask(e cm.Event, head *[cm.PrivateREQ]byte, ev verbs.CMEvent) {
	listener := e.Listener.User.(*cmID)
	if listener.kind != wanted(&e) {
		m.turnAway(e.Conn, cm.RejInvalidServiceID, cm.SIDRUnsupported)
		return
	}
	var h cm.ConnHeader
	if !listener.ib {
		var err error
		if h, err = cm.ParseConnHeader(head); err != nil {
			m.dev.p.CountMalformed()
			e.Conn.Close(m.dev.p.Now())
			return
		}
	}
	listener.mu.Lock()
	defer listener.mu.Unlock()
	if listener.closed {
		e.Conn.Close(m.dev.p.Now())
		return
	}
	// The machine bounds unanswered requests, but a peer may abandon one and send another while
	// the first event is still unread.
	if len(listener.children) >= e.Listener.Backlog() {
		if path := e.Conn.Peer(); path.Far() {
			e.Conn.Drop() // as with a full backlog: see cm.Machine.onREQ
		} else {
			m.turnAway(e.Conn, cm.RejNoResources, cm.SIDRNoQP)
		}
		return
	}
	var end *roce.End
	if path := e.Conn.Peer(); path.Far() {
		if end = m.dev.link.Load().Hold(&path); end == nil { // the listener is being closed
			e.Conn.Close(m.dev.p.Now())
			return
		}
	}
	id := m.dev.provider.newID(listener.ch, listener.ps, listener.kind)
	id.userData.Store(listener.userData.Load())
	id.dev, id.conn, id.req, id.state = m.dev, e.Conn, e.REQ, idAsked
	id.path, id.sock = e.Conn.Peer(), end
	if e.REQ != nil {
		id.agreed, id.peerECE = m.dev.offered(id.path, e.REQ), verbs.ECE{Vendor: e.REQ.Vendor, Options: e.REQ.Options}
	}
	id.local = netip.AddrPortFrom(m.dev.cfg.Addr.Unmap(), listener.local.Port())
	if id.path.Far() {
		if id.path.Local != (verbs.GID{}) {
			id.local = netip.AddrPortFrom(id.path.Local.Addr(), id.path.LocalPort)
		}
	}
	id.peer = netip.AddrPortFrom(id.path.Peer.Addr(), h.SrcPort)
	id.inheritIB(listener, &e)
	e.Conn.User = id
	id.join(m.dev)
	if listener.children == nil {
		listener.children = map[*cmID]struct{}{}
	}
	listener.children[id] = struct{}{}
	ev.Type, ev.ID, ev.ListenID = verbs.CMConnectRequest, id, listener
	listener.ch.push(cmEvent{id: id, listen: listener, ev: ev})
}

// wanted returns the type of the listeners that a connection or SIDR request is for.
func wanted(e *cm.Event) verbs.QPType {
	switch {
	case e.Kind == cm.EvSIDRRequest:
		return verbs.QPTUD
	case e.REQ.XRC():
		return verbs.QPTXRCRecv
	}
	return verbs.QPTRC
}

// turnAway refuses a connection or SIDR request without reporting it to the user. It runs during
// Progress.
func (m *deviceCM) turnAway(c *cm.Conn, why cm.Reason, status cm.SIDRStatus) {
	now := m.dev.p.Now()
	if c.State() == cm.StateSIDRREQRcvd {
		_ = c.Answer(now, status, 0, 0, nil) // the state allows it
		return
	}
	_ = c.Reject(now, why, nil) // likewise: the request has just arrived
}

// report queues an event of the identifier, unless the identifier is closed.
func (id *cmID) report(ev verbs.CMEvent) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !id.closed {
		ev.ID = id
		id.ch.push(cmEvent{ev: ev, id: id})
	}
}

// end breaks the queue pair, unless it is a datagram queue pair, and reports ev. It runs during
// Progress.
func (id *cmID) end(ev verbs.CMEvent) {
	id.breakQP()
	id.become(idEnded)
	id.report(ev)
}

// onReply handles the peer's acceptance. It runs during Progress.
func (id *cmID) onReply(now time.Duration, rep *cm.REP) {
	ev := verbs.CMEvent{Type: verbs.CMConnectResponse, Conn: verbs.ConnParam{
		PrivateData:        rep.Private[:],
		ResponderResources: rep.InitiatorDepth, InitiatorDepth: rep.ResponderResources,
		FlowControl: rep.FlowControl, RNRRetryCount: rep.RNRRetry, SRQ: rep.SRQ, QPNum: rep.QPN,
	}}
	a := &id.connect
	id.agreed = peerEnd{
		path: id.path, qpn: rep.QPN, psn: rep.PSN, mtuCode: cm.MTUCode(a.MTU),
		timeout: a.AckTimeout, retry: a.RetryCount, rnrRetry: rep.RNRRetry, trafficClass: a.TrafficClass,
		resources: depth(a.ResponderResources, rep.InitiatorDepth, id.dev),
		depth:     depth(a.InitiatorDepth, rep.ResponderResources, id.dev),
		waits:     a.RNRRetry == verbs.RNRRetryInfinite,
	}
	if id.qp == nil {
		id.mu.Lock()
		id.peerECE = verbs.ECE{Vendor: rep.Vendor, Options: rep.Options}
		id.mu.Unlock()
		id.become(idReplied)
		id.report(ev)
		return
	}
	err := id.ready()
	if err == nil {
		err = id.conn.SendRTU(now, nil)
	}
	if err != nil {
		id.conn.Close(now)
		ev.Type, ev.Status = verbs.CMConnectError, -int(syscall.EINVAL)
		id.end(ev)
		return
	}
	ev.Type = verbs.CMEstablished
	id.become(idEstablished)
	id.report(ev)
}

// onRejected handles a rejection. A peer with a smaller MTU reports it in the rejection, and
// onRejected repeats the request with that MTU. It runs during Progress.
func (id *cmID) onRejected(now time.Duration, rej *cm.REJ) {
	if rej.Reason == cm.RejInvalidMTU && rej.ARILen > 0 && rej.Answers == cm.AnswersREQ {
		mtu, ok := cm.MTUFromCode(rej.ARI[0])
		if s, _, closed := id.look(); ok && mtu < id.connect.MTU && s == idConnecting && !closed {
			id.connect.MTU = mtu
			if conn, err := id.dev.cm.machine.Connect(now, &id.connect, id); err == nil {
				id.conn = conn
				return
			}
		}
	}
	id.end(verbs.CMEvent{Type: verbs.CMRejected, Status: int(rej.Reason), Conn: verbs.ConnParam{PrivateData: rej.Private[:]}})
}
