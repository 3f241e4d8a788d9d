package cm

import (
	"fmt"
	"slices"
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

// service is what a listener listens to: requests for a service ID that ask for an address, and whose RDMA CM
// header has an IP version. The zero value of either is any.
type service struct {
	id      uint64
	version uint8
	at      verbs.GID
}

// has reports whether both are the same, or one includes the other.
func (s *service) has(o *service) bool {
	return (s.version == o.version || s.version == 0 || o.version == 0) &&
		(s.at == o.at || s.at == verbs.GID{} || o.at == verbs.GID{})
}

// Listen accepts requests for a service from now on. backlog bounds the unanswered ones; 0 is 1024.
// It returns ErrInUse for a service that already has a listener.
func (m *Machine) Listen(id uint64, backlog int, user any) (*Listener, error) {
	return m.ListenAt(id, verbs.GID{}, 0, backlog, user)
}

// ListenAt is Listen for requests that ask for one address of this end, from addresses of one IP version, 4 or 6.
// The zero value of either is any. Other requests for the service are refused, unless they have a listener too.
func (m *Machine) ListenAt(id uint64, at verbs.GID, version uint8, backlog int, user any) (*Listener, error) {
	s := service{id, version, at}
	for _, l := range m.listeners[id] {
		if l.service.has(&s) {
			return nil, fmt.Errorf("%w: 0x%016x", ErrInUse, id)
		}
	}
	if backlog <= 0 {
		backlog = defaultBacklog
	}
	l := &Listener{User: user, m: m, service: s, backlog: backlog}
	m.listeners[id] = append(m.listeners[id], l)
	return l, nil
}

// listener returns the listener for a request with such private data; nil if there is none. Between processes the
// request asks for the address at which its datagram has arrived: what the header says is the peer's choice.
//
// Implements: cma_match_private_data (kernel cma.c).
func (m *Machine) listener(src *wire.Path, id uint64, private []byte) *Listener {
	asked := service{id: serviceAt(src, id)}
	all := m.listeners[asked.id]
	if len(all) == 0 {
		return nil
	}
	asked.version, asked.at = ipVersion(private), src.Local
	if !src.Far() {
		asked.at = dstGID(private)
	}
	for _, l := range all {
		if l.service.takes(&asked) {
			return l
		}
	}
	return nil
}

// takes reports whether requests for asked are the listener's.
func (s *service) takes(asked *service) bool {
	return (s.version == 0 || s.version == asked.version) && (s.at == verbs.GID{} || s.at == asked.at)
}

// Backlog returns the bound of unanswered requests.
func (l *Listener) Backlog() int { return l.backlog }

// Close ends listening; idempotent. Requests that were reported are not affected.
func (l *Listener) Close() {
	all := slices.DeleteFunc(l.m.listeners[l.service.id], func(o *Listener) bool { return o == l })
	if len(all) == 0 {
		delete(l.m.listeners, l.service.id)
	} else {
		l.m.listeners[l.service.id] = all
	}
}

// onREQ handles a request or its repetition.
func (m *Machine) onREQ(now time.Duration, src wire.Path, req *REQ) bool {
	if c := m.byRemote[remoteID{src, req.LocalID}]; c != nil {
		return c.repeatedREQ(src, req)
	}
	l := m.listener(&src, req.ServiceID, req.Private[:])
	old := m.byQPN[remoteQP{src, req.QPN}]
	refuse := func(why Reason, info ...byte) {
		m.refuse(src, REJ{TID: req.TID, RemoteID: req.LocalID, Answers: AnswersREQ, Reason: why}, info...)
	}
	switch {
	case old != nil:
		refuse(RejStaleConn)
		// A REQ from outside names only the peer's queue pair: not enough to end a connection with. And a peer
		// asks again with a smaller MTU under another ID and for the same queue pair: a late copy of its
		// first request must not end the connection of the second.
		if m.inside(&src) && (l == nil || m.carries(src, req)) {
			old.stale(now)
		}
	case m.timewait.hasQP(src, req.QPN):
		refuse(RejStaleConn)
	case l == nil:
		refuse(RejInvalidServiceID)
	case req.Transport != TransportRC && !req.XRC():
		refuse(RejInvalidTransport)
	case l.pending >= l.backlog:
		// A peer in another process repeats its request, and may find a place then: a flood of requests by a stranger
		// must not have it refused.
		if m.inside(&src) {
			refuse(RejNoResources)
		}
	case !m.carries(src, req): // the last, because the look at the route is a system call
		refuse(RejInvalidMTU, MTUCode(m.mtuOf(src)))
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

// carries reports whether a path carries packets of the MTU that a request asks for.
func (m *Machine) carries(p wire.Path, req *REQ) bool {
	mtu, ok := MTUFromCode(req.PathMTU)
	return ok && mtu <= m.mtuOf(p)
}

// request creates a connection from a copy of req and reports it.
func (m *Machine) request(now time.Duration, src wire.Path, req *REQ, l *Listener) {
	kept := *req
	// A request from outside may have a forged address, and must not choose how long it is kept: with the longest
	// times of a REQ that is 18 minutes.
	wait, retries := codeTime(m.cfg.ResponseTimeout), m.cfg.MaxRetries
	if m.inside(&src) {
		wait, retries = codeTime(req.LocalTimeout), req.MaxCMRetries
	}
	c := &Conn{
		m: m, listener: l, passive: true, state: StateREQRcvd, local: m.newID(), remote: req.LocalID,
		peer: src, rqpn: req.QPN, tid: req.TID, req: &kept,
		wait: wait, maxRetries: retries,
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
	if req.TID != c.tid || req.QPN != c.rqpn {
		return false
	}
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
	return rtu.TID == c.tid && c.Established()
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
