package cm

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// defaultBacklog is the backlog of Listen for 0 or less, the kernel's default (ucma.c max_backlog).
const defaultBacklog = 1024

// Listener receives the requests for one service.
type Listener struct {
	// User is the consumer's; the machine does not use it.
	User any

	m       *Machine
	service service
	backlog int
	pending int // unanswered requests
}

// service is what a listener listens to: requests for a service ID whose RDMA CM header has an IP version, or
// any (0).
type service struct {
	id      uint64
	version uint8
}

// Listen accepts requests for a service from now on. backlog bounds the unanswered ones; 0 is 1024.
// It returns ErrInUse for a service that already has a listener.
func (m *Machine) Listen(id uint64, backlog int, user any) (*Listener, error) {
	return m.ListenIP(id, 0, backlog, user)
}

// ListenIP is Listen for requests from addresses of one IP version, 4 or 6; 0 is any. Other requests for the
// service are refused, unless they have a listener too.
func (m *Machine) ListenIP(id uint64, version uint8, backlog int, user any) (*Listener, error) {
	for _, v := range []uint8{0, 4, 6} {
		if m.listeners[service{id, v}] != nil && (v == version || v == 0 || version == 0) {
			return nil, fmt.Errorf("%w: 0x%016x", ErrInUse, id)
		}
	}
	if backlog <= 0 {
		backlog = defaultBacklog
	}
	l := &Listener{User: user, m: m, service: service{id, version}, backlog: backlog}
	m.listeners[l.service] = l
	return l, nil
}

// listener returns the listener for a request with such private data; nil if there is none.
//
// Implements: cma_match_private_data (kernel cma.c) for listeners at unspecified addresses.
func (m *Machine) listener(src *wire.Path, id uint64, private []byte) *Listener {
	id = serviceAt(src, id)
	if l := m.listeners[service{id, 0}]; l != nil {
		return l
	}
	return m.listeners[service{id, ipVersion(private)}]
}

// Backlog returns the bound of unanswered requests.
func (l *Listener) Backlog() int { return l.backlog }

// Close ends listening; idempotent. Requests that were reported are not affected.
func (l *Listener) Close() {
	if l.m.listeners[l.service] == l {
		delete(l.m.listeners, l.service)
	}
}

// onREQ handles a request or its repetition.
func (m *Machine) onREQ(now time.Duration, src wire.Path, req *REQ) bool {
	if c := m.byRemote[remoteID{src, req.LocalID}]; c != nil {
		return c.repeatedREQ(src, req)
	}
	mtu, ok := MTUFromCode(req.PathMTU)
	l := m.listener(&src, req.ServiceID, req.Private[:])
	old := m.byQPN[remoteQP{src, req.QPN}]
	var most verbs.MTU
	if l != nil { // otherwise it is refused anyway, without the cost of a look at the route
		most = m.mtuOf(src)
	}
	refuse := func(why Reason, info ...byte) {
		m.refuse(src, REJ{TID: req.TID, RemoteID: req.LocalID, Answers: AnswersREQ, Reason: why}, info...)
	}
	switch {
	// Before the stale connection: a peer asks again with a smaller MTU under another ID and for
	// the same queue pair, and a late copy of its first request must not end the connection of the
	// second. A REQ with an acceptable MTU finds the stale one.
	case l != nil && (!ok || mtu > most):
		refuse(RejInvalidMTU, MTUCode(most))
	case old != nil:
		refuse(RejStaleConn)
		old.stale(now)
	case m.timewait.hasQP(src, req.QPN):
		refuse(RejStaleConn)
	case l == nil:
		refuse(RejInvalidServiceID)
	case req.Transport != TransportRC && !req.XRC():
		refuse(RejInvalidTransport)
	case l.pending >= l.backlog:
		refuse(RejNoResources)
	default:
		m.request(now, src, req, l)
	}
	return true
}

// serviceAt returns the service that a request for a service asks for: between processes, the one whose
// socket it came to, since a port may be mapped on the way.
func serviceAt(p *wire.Path, service uint64) uint64 {
	if !p.Far() {
		return service
	}
	return service&^0xffff | uint64(p.LocalPort)
}

// request creates a connection from a copy of req and reports it.
func (m *Machine) request(now time.Duration, src wire.Path, req *REQ, l *Listener) {
	kept := *req
	c := &Conn{
		m: m, listener: l, passive: true, state: StateREQRcvd, local: m.newID(), remote: req.LocalID,
		peer: src, rqpn: req.QPN, tid: req.TID, req: &kept,
		wait: codeTime(req.LocalTimeout), maxRetries: req.MaxCMRetries,
	}
	c.asked()
	l.pending++
	m.byLocal[c.local] = c
	m.byRemote[remoteID{src, c.remote}] = c
	m.byQPN[remoteQP{src, c.rqpn}] = c
	m.timers.set(c, now+codeTime(req.RemoteTimeout)/2) // then an MRA
	c.emit(Event{Kind: EvRequest, Listener: l, REQ: &kept})
}

// repeatedREQ gives the same answer as to the first copy.
func (c *Conn) repeatedREQ(src wire.Path, req *REQ) bool {
	c.asked()
	switch c.state {
	case StateREQRcvd:
		c.sendMRA(AnswersREQ)
		c.rest(StateMRAREQSent)
	case StateMRAREQSent:
		c.sendMRA(AnswersREQ)
	case StateREPSent, StateMRAREPRcvd, StateREJSent: // last is the REP or the REJ
		c.repeat()
	case StateDREQSent, StateTimewait:
		if !c.allowed() {
			break
		}
		c.m.refuse(src, REJ{TID: req.TID, LocalID: c.local, RemoteID: req.LocalID, Answers: AnswersREQ, Reason: RejStaleConn})
	default: // ESTABLISHED, DREQ_RCVD: it is late, the peer has the REP
		return false
	}
	return true
}

// AcceptParam is the parameters of Accept.
type AcceptParam struct {
	QPN                uint32
	PSN                uint32
	ResponderResources uint8
	InitiatorDepth     uint8
	RNRRetry           uint8
	FlowControl        bool
	SRQ                bool
	ECE                verbs.ECE
	Private            []byte // at most PrivateREP bytes
}

// Accept answers a request with a REP. The outcome is EvEstablished, EvRejected, EvUnreachable or
// EvDisconnected. The queue pair must be able to receive before the call.
func (c *Conn) Accept(now time.Duration, p *AcceptParam) error {
	if c.state != StateREQRcvd && c.state != StateMRAREQSent {
		return &StateError{"Accept", c.state}
	}
	rep := &REP{
		TID: c.tid, LocalID: c.local, RemoteID: c.remote, CAGUID: c.m.cfg.GUID, QPN: p.QPN, PSN: p.PSN,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		RNRRetry: p.RNRRetry, FlowControl: p.FlowControl, SRQ: p.SRQ, Vendor: p.ECE.Vendor, Options: p.ECE.Options,
	}
	if c.req.XRC() {
		rep.LocalEECN, rep.SRQ = p.QPN, true
	}
	if err := setPrivate(AttrREP, rep.Private[:], p.Private); err != nil {
		return err
	}
	if err := c.transmit(rep); err != nil {
		return err
	}
	c.lqpn = p.QPN
	c.answered()
	c.await(now, StateREPSent)
	return nil
}

// Reject refuses a request. No event follows; the connection belongs to the machine from now on.
func (c *Conn) Reject(now time.Duration, why Reason, private []byte) error {
	if c.state != StateREQRcvd && c.state != StateMRAREQSent {
		return &StateError{"Reject", c.state}
	}
	rej := &c.m.rej
	*rej = REJ{TID: c.tid, LocalID: c.local, RemoteID: c.remote, Answers: AnswersREQ, Reason: why}
	if err := setPrivate(AttrREJ, rej.Private[:], private); err != nil {
		return err
	}
	// While the peer may repeat the REQ it gets the same answer.
	keep := min(rejKeep, codeTime(c.req.RemoteTimeout)*time.Duration(c.req.MaxCMRetries+1))
	c.remember(now+keep, StateREJSent)
	return c.transmit(rej)
}

// onRTU establishes the passive side.
func (m *Machine) onRTU(src wire.Path, rtu *RTU) bool {
	c := m.find(src, rtu.RemoteID, rtu.LocalID)
	if c == nil { // this side has given up, and its DREQs were lost: otherwise the peer would wait for ever
		m.refuse(src, REJ{TID: rtu.TID, LocalID: rtu.RemoteID, RemoteID: rtu.LocalID, Answers: AnswersOther, Reason: RejInvalidCommID})
		return true
	}
	return c.Established()
}

// Established records that data arrived on the queue pair, which has the same effect as an RTU. It
// reports whether that changed the state; it does nothing in states other than REP_SENT and
// MRA_REP_RCVD.
//
// Implements: ib_cm_notify with IB_EVENT_COMM_EST.
func (c *Conn) Established() bool {
	if c.state != StateREPSent && c.state != StateMRAREPRcvd {
		return false
	}
	c.proven = true
	c.rest(StateEstablished)
	c.emit(Event{Kind: EvEstablished})
	return true
}
