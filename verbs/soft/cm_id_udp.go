package soft

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Identifiers of port space UDP make no connection. A SIDR_REQ asks a listener for its queue
// pair, and the answer brings it. A refusal is reported as UNREACHABLE with the status of the
// answer, as cma_sidr_rep_handler (kernel cma.c) does.

// datagrams reports whether the identifier is in port space UDP.
func (id *cmID) datagrams() bool { return id.ps == verbs.PSUDP }

// ports returns the table of the identifier's port space.
func (id *cmID) ports() *cmPorts {
	if id.datagrams() {
		return &id.p.cm.udpPorts
	}
	return &id.p.cm.ports
}

// qpType returns the type of queue pair that CreateQP makes.
//
// Implements: rdma_create_id of librdmacm, which ties the type to the port space.
func (id *cmID) qpType() verbs.QPType {
	if id.datagrams() {
		return verbs.QPTUD
	}
	return verbs.QPTRC
}

// readyUD moves a new datagram queue pair to RTS. The caller holds the device's token.
//
// Implements: ucma_init_ud_qp (librdmacm cma.c).
func readyUD(q *queuePair) error {
	err := q.modify(&verbs.QPAttr{State: verbs.QPSInit, Port: portNumber, QKey: verbs.UDPQKey},
		verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMQKey)
	if err == nil {
		err = q.modify(&verbs.QPAttr{State: verbs.QPSRTR}, verbs.QPMState)
	}
	if err == nil {
		err = q.modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState|verbs.QPMSQPSN)
	}
	return err
}

// ask implements Connect in port space UDP. The caller holds api.
func (id *cmID) ask(op string, p *verbs.ConnParam) error {
	var data []byte
	if p != nil {
		data = p.PrivateData
	}
	if len(data) > verbs.MaxPrivateUDP {
		return id.refuse(op, "%d bytes of private data, at most %d", len(data), verbs.MaxPrivateUDP)
	}
	return id.exclusive(op, []idState{idRouteResolved}, func(now time.Duration) error {
		var head [cm.PrivateREQ]byte
		cm.ConnHeader{SrcPort: id.port, Src: id.local.Addr(), Dst: id.path.Peer.Addr()}.Put(&head)
		conn, err := id.dev.cm.machine.Lookup(now, &cm.LookupParam{
			Dst: id.path, ServiceID: cm.ServiceID(id.ps, id.peer.Port()),
			PKey: wire.DefaultPKey, Private: append(head[:cm.ConnHeaderSize:cm.ConnHeaderSize], data...),
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
	m.ask(e, &head, verbs.CMEvent{UD: verbs.UDParam{PrivateData: e.SIDRREQ.Private[cm.ConnHeaderSize:]}})
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

// JoinMulticast joins a multicast group. MULTICAST_JOIN reports the address handle attributes; on
// RoCE joining needs no manager. It attaches the identifier's queue pair, if there is one; if that fails, MULTICAST_ERROR reports
// it. A group joined twice must be left twice. It waits for a running Progress call of the
// device.
//
// Implements: rdma_join_multicast; cma_iboe_join_multicast (kernel cma.c), which accepts an
// identifier that is bound or resolved; here also one that listens.
func (id *cmID) JoinMulticast(group netip.Addr, userData uint64) error {
	const op = "rdma_join_multicast"
	id.api.Lock()
	defer id.api.Unlock()
	switch {
	case !id.datagrams():
		return id.refuse(op, "port space 0x%04x has no datagrams", uint16(id.ps))
	case !group.IsMulticast():
		return id.refuse(op, "%v is no multicast address", group)
	}
	states := []idState{idBound, idListening, idAddrResolved, idRouteResolved}
	return id.exclusive(op, states, func(time.Duration) error {
		gid := verbs.GIDFromAddr(group)
		path := wire.To(gid)
		ev := verbs.CMEvent{Type: verbs.CMMulticastJoin, UserData: userData, UD: verbs.UDParam{
			AH: id.dev.wayTo(&path, id.tos), QPNum: verbs.McastQPN, QKey: verbs.UDPQKey,
		}}
		if id.qp != nil && id.dev.attachMcast(id.qp, gid) != nil { // too many groups or queue pairs
			ev.Type, ev.Status = verbs.CMMulticastError, -int(syscall.ENOMEM)
		} else {
			id.groups = append(id.groups, gid)
		}
		id.report(ev)
		return nil
	})
}

// LeaveMulticast leaves a group. It returns EADDRNOTAVAIL when the group was not joined. It waits
// for a running Progress call of the device. Close leaves all groups.
//
// Implements: rdma_leave_multicast.
func (id *cmID) LeaveMulticast(group netip.Addr) error {
	const op = "rdma_leave_multicast"
	id.api.Lock()
	defer id.api.Unlock()
	left := false
	if err := id.exclusive(op, []idState{idBound, idListening, idAddrResolved, idRouteResolved, idConnecting, idEstablished, idEnded}, func(time.Duration) error {
		left = id.leaveGroup(verbs.GIDFromAddr(group))
		return nil
	}); err != nil {
		return err
	}
	if !left {
		return opError(op, id.String(), syscall.EADDRNOTAVAIL, "%w: %v was not joined", verbs.ErrInvalid, group)
	}
	return nil
}

// leaveGroup undoes one join, and detaches the queue pair with the last. The caller holds the
// device's token.
func (id *cmID) leaveGroup(gid verbs.GID) bool {
	i := slices.Index(id.groups, gid)
	if i < 0 {
		return false
	}
	id.groups = slices.Delete(id.groups, i, i+1)
	if id.qp != nil && !slices.Contains(id.groups, gid) {
		id.dev.detachMcast(id.qp, gid)
	}
	return true
}
