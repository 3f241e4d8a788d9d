package soft

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Identifiers of port space UDP make no connection. A SIDR_REQ asks a listener for its queue
// pair, and the answer brings it. A refusal is reported as UNREACHABLE with the status of the
// answer, as cma_sidr_rep_handler (kernel cma.c) does.

// datagrams reports whether the identifier is in port space UDP.
func (id *cmID) datagrams() bool { return id.kind == verbs.QPTUD }

// ports returns the table of the identifier's port space.
func (id *cmID) ports() *cmPorts { return id.p.cm.ports[id.ps] }

// readyUD moves a new datagram queue pair to RTS. The caller holds the device's token.
//
// Implements: ucma_init_ud_qp (librdmacm cma.c).
func readyUD(q *queuePair) error {
	for _, to := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
		a, mask := udAttr(to)
		if err := q.modify(&a, mask); err != nil {
			return err
		}
	}
	return nil
}

// udAttr returns the attributes of a datagram queue pair's step to INIT, RTR or RTS.
func udAttr(to verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask) {
	switch to {
	case verbs.QPSInit:
		return verbs.QPAttr{State: to, Port: portNumber, QKey: verbs.UDPQKey}, verbs.QPMState | verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMQKey
	case verbs.QPSRTS:
		return verbs.QPAttr{State: to}, verbs.QPMState | verbs.QPMSQPSN
	}
	return verbs.QPAttr{State: to}, verbs.QPMState
}

// ask implements Connect in port space UDP. The caller holds api.
func (id *cmID) ask(op string, p *verbs.ConnParam) error {
	var data []byte
	if p != nil {
		data = p.PrivateData
	}
	private := verbs.MaxPrivateUDP
	if id.ib {
		private = verbs.MaxPrivateUDPIB
	}
	if len(data) > private {
		return id.refuse(op, "%d bytes of private data, at most %d", len(data), private)
	}
	return id.exclusive(op, []idState{idRouteResolved}, func(now time.Duration) error {
		conn, err := id.dev.cm.machine.Lookup(now, &cm.LookupParam{
			Dst: id.path, ServiceID: id.service(), PKey: wire.DefaultPKey, Private: append(id.header(), data...),
		}, id)
		if err != nil {
			return err
		}
		id.conn = conn
		id.become(idConnecting)
		return nil
	})
}

// answer implements Accept and, with another status, Reject in port space UDP. Without a queue
// pair, p must give its number. The caller holds api.
func (id *cmID) answer(op string, status cm.SIDRStatus, p *verbs.ConnParam) error {
	var data []byte
	qpn := uint32(0)
	if p != nil {
		data, qpn = p.PrivateData, p.QPNum
	}
	if len(data) > cm.PrivateSIDRREP {
		return id.refuse(op, "%d bytes of private data, at most %d", len(data), cm.PrivateSIDRREP)
	}
	if id.qp != nil { // only CreateQP and Close write it, under api
		qpn = id.qp.number
	}
	if status == cm.SIDRSuccess && (qpn < firstQP || qpn > max24) {
		return id.refuse(op, "without a queue pair its number must be given, 0x%x is none", qpn)
	}
	return id.exclusive(op, []idState{idAsked}, func(now time.Duration) error {
		id.become(idEnded) // no event follows
		return id.conn.Answer(now, status, qpn, verbs.UDPQKey, data)
	})
}

// question makes an identifier for a SIDR request and queues CONNECT_REQUEST. It runs during
// Progress.
func (m *deviceCM) question(e cm.Event) {
	var head [cm.PrivateREQ]byte
	copy(head[:cm.ConnHeaderSize], e.SIDRREQ.Private[:])
	private := e.SIDRREQ.Private[e.Listener.User.(*cmID).headerSize():]
	m.ask(e, &head, verbs.CMEvent{UD: verbs.UDParam{PrivateData: private}})
}

// answered handles the answer to this side's SIDR request. It runs during Progress.
func (id *cmID) answered(rep *cm.SIDRREP) {
	ev := verbs.CMEvent{Type: verbs.CMUnreachable, Status: int(rep.Status), UD: verbs.UDParam{PrivateData: rep.Private[:]}}
	if rep.Status == cm.SIDRSuccess {
		ev.Type = verbs.CMEstablished
		ev.UD.AH, ev.UD.QPNum, ev.UD.QKey = id.dev.wayTo(&id.path, id.tos), rep.QPN, rep.QKey
		id.become(idEstablished)
		id.report(ev)
		return
	}
	id.end(ev)
}

// wayTo returns the attributes of an address handle for a path to a port or a group. Its LID is the UDP
// port of the peer, if it has one.
func (d *device) wayTo(p *wire.Path, trafficClass uint8) verbs.AHAttr {
	return verbs.AHAttr{DGID: p.Peer, DLID: p.PeerPort, SGIDIndex: d.gids.index(p.Local), TrafficClass: trafficClass, HopLimit: cmHopLimit, Port: portNumber}
}

// cmHopLimit is the hop limit of the paths that the CM reports: a routed packet's.
const cmHopLimit = 64
