package soft

import (
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// maxDepth asks for as many READs and atomics as the device can.
//
// Implements: RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH.
const maxDepth = 0xff

// CreateQP makes a queue pair on the identifier's device and moves it to INIT,
// so that receives can be posted; in port space UDP to RTS, with the key UDPQKey. The identifier moves it on when connecting,
// and destroys it when it is closed. It waits for a turn of the device to end.
//
// Implements: rdma_create_qp.
func (id *cmID) CreateQP(pd verbs.PD, init *verbs.QPInitAttr) error {
	const op = "rdma_create_qp"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idBound, idListening, idAddrResolved, idRouteResolved, idAsked); err != nil {
		return err
	}
	s, dev, _ := id.look()
	own, ok := pd.(*protectionDomain)
	switch {
	case !ok || own == nil:
		return id.refuse(op, "%v is not a protection domain of this provider", pd)
	case dev == nil:
		return id.refuse(op, "the identifier is not bound to a device")
	case own.ctx.dev != dev:
		return id.refuse(op, "%v is of another device than %s", pd, dev.cfg.Name)
	case s == idListening && !id.datagrams():
		return id.refuse(op, "a listener has no queue pair in port space TCP")
	case init.Type != id.qpType():
		return id.refuse(op, "a queue pair of type %v in port space 0x%04x, which has %v", init.Type, uint16(id.ps), id.qpType())
	case id.QP() != nil:
		return id.refuse(op, "it has %v already", id.QP())
	}
	made, err := own.CreateQP(init)
	if err != nil {
		return err
	}
	q := made.(*queuePair)
	dev.exclusive(func() {
		if id.datagrams() {
			err = readyUD(q)
		} else {
			err = q.modify(initAttr, initMask)
		}
		if err != nil {
			_ = q.destroy() // new, so nothing keeps it
			return
		}
		if !id.datagrams() {
			dev.cm.byQP[q] = id
		}
		id.mu.Lock()
		id.qp = q
		id.mu.Unlock()
	})
	return err
}

// depth is how many READs and atomics are agreed on, of what is asked here,
// what the peer offers and what the device can.
func depth(asked, offered uint8, d *device) uint8 {
	return uint8(min(int(asked), int(offered), d.cfg.Limits.MaxRdAtomic))
}

// checkParam refuses what cannot be sent or done. p may be nil when there is a
// queue pair; then it is the default: as many READs as possible, retry counts
// of 7.
func (id *cmID) checkParam(op string, p *verbs.ConnParam, private int, defaults verbs.ConnParam) (verbs.ConnParam, error) {
	qp := id.qp // only CreateQP and Close write it, under api
	if p == nil {
		if qp == nil {
			return defaults, id.refuse(op, "without a queue pair its number must be given")
		}
		p = &defaults
	}
	c := *p
	top := id.dev.cfg.Limits.MaxRdAtomic
	switch {
	case len(c.PrivateData) > private:
		return c, id.refuse(op, "%d bytes of private data, at most %d", len(c.PrivateData), private)
	case c.ResponderResources != maxDepth && int(c.ResponderResources) > top:
		return c, id.refuse(op, "%d responder resources, the device has %d", c.ResponderResources, top)
	case c.InitiatorDepth != maxDepth && int(c.InitiatorDepth) > top:
		return c, id.refuse(op, "an initiator depth of %d, the device has %d", c.InitiatorDepth, top)
	case c.RetryCount > maxRetry || c.RNRRetryCount > maxRetry:
		return c, id.refuse(op, "retry counts of %d and %d, at most %d", c.RetryCount, c.RNRRetryCount, maxRetry)
	case qp == nil && (c.QPNum < firstQP || c.QPNum > max24):
		return c, id.refuse(op, "0x%x is no queue pair number", c.QPNum)
	}
	if qp != nil {
		c.QPNum, c.SRQ = qp.number, false
	}
	return c, nil
}

var defaultParam = verbs.ConnParam{
	ResponderResources: maxDepth, InitiatorDepth: maxDepth, RetryCount: maxRetry, RNRRetryCount: maxRetry,
}

// Connect sends the request. With a queue pair the outcome is ESTABLISHED, the
// queue pair being in RTS by then, or REJECTED, UNREACHABLE, CONNECT_ERROR.
// Without one it is CONNECT_RESPONSE, the consumer readies its queue pair, and
// Accept establishes. p may be nil when there is a queue pair; depths of 0xff
// ask for the most. It waits for a turn of the device to end.
//
// The path has the device's MTU; when the peer's is smaller it refuses and is
// asked again with that. The local ACK timeout of this side is what SetAckTimeout
// set, at least 14 (67 ms); the peer is told, and has its own.
//
// In port space UDP it asks for the listener's queue pair, which ESTABLISHED brings;
// of p the private data counts, at most 180 bytes, and p may be nil.
//
// Implements: rdma_connect.
func (id *cmID) Connect(p *verbs.ConnParam) error {
	const op = "rdma_connect"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idRouteResolved); err != nil {
		return err
	}
	if id.datagrams() {
		return id.ask(op, p)
	}
	c, err := id.checkParam(op, p, verbs.MaxPrivateConnect, defaultParam)
	if err != nil {
		return err
	}
	return id.exclusive(op, []idState{idRouteResolved}, func(now time.Duration) error {
		d := id.dev
		id.psn = d.cm.psn()
		id.connect = cm.ConnectParam{
			Dst: verbs.GIDFromAddr(id.peer.Addr()), ServiceID: cm.ServiceID(verbs.PSTCP, id.peer.Port()),
			QPN: c.QPNum, PSN: id.psn,
			ResponderResources: depth(c.ResponderResources, maxDepth, d), InitiatorDepth: depth(c.InitiatorDepth, maxDepth, d),
			RetryCount: c.RetryCount, RNRRetry: c.RNRRetryCount, FlowControl: c.FlowControl, SRQ: c.SRQ,
			MTU: d.cfg.MTU, AckTimeout: id.ackTimeout(), PKey: wire.DefaultPKey,
		}
		var private [cm.PrivateREQ]byte
		cm.ConnHeader{SrcPort: id.port, Src: id.local.Addr(), Dst: id.peer.Addr()}.Put(&private)
		copy(private[cm.ConnHeaderSize:], c.PrivateData)
		id.connect.Private = private[:]
		conn, err := d.cm.machine.Connect(now, &id.connect, id)
		if err != nil {
			return err
		}
		id.conn = conn
		id.become(idConnecting)
		return nil
	})
}

// Accept answers a CONNECT_REQUEST: the queue pair is moved to RTS and the
// reply sent. ESTABLISHED follows, or REJECTED, UNREACHABLE, DISCONNECTED. p may
// be nil when there is a queue pair; the depths agreed on are at most what the
// peer asked for. After CONNECT_RESPONSE, on the active side, it establishes.
// It waits for a turn of the device to end.
//
// In port space UDP it is the answer, with at most 136 bytes of private data; no
// event follows.
//
// Implements: rdma_accept; rdma_establish on the active side.
func (id *cmID) Accept(p *verbs.ConnParam) error {
	const op = "rdma_accept"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idAsked, idReplied); err != nil {
		return err
	}
	if id.datagrams() {
		return id.answer(op, cm.SIDRSuccess, p)
	}
	if s, _, _ := id.look(); s == idReplied {
		return id.exclusive(op, []idState{idReplied}, func(time.Duration) error {
			if err := id.conn.SendRTU(nil); err != nil {
				return err
			}
			id.become(idEstablished)
			id.report(verbs.CMEvent{Type: verbs.CMEstablished})
			return nil
		})
	}
	defaults := defaultParam
	c, err := id.checkParam(op, p, verbs.MaxPrivateAccept, defaults)
	if err != nil {
		return err
	}
	return id.exclusive(op, []idState{idAsked}, func(now time.Duration) error {
		d := id.dev
		id.psn = d.cm.psn()
		resources := depth(c.ResponderResources, id.req.InitiatorDepth, d)
		initiator := depth(c.InitiatorDepth, id.req.ResponderResources, d)
		if id.qp != nil {
			if err := id.ready(&peerEnd{
				gid: id.conn.Peer(), qpn: id.req.QPN, psn: id.req.PSN, mtuCode: id.req.PathMTU,
				timeout: id.ackTimeout(), retry: c.RetryCount, rnrRetry: id.req.RNRRetry,
				resources: resources, depth: initiator,
			}); err != nil {
				return err
			}
		}
		if err := id.conn.Accept(now, &cm.AcceptParam{
			QPN: c.QPNum, PSN: id.psn, ResponderResources: resources, InitiatorDepth: initiator,
			RNRRetry: c.RNRRetryCount, FlowControl: c.FlowControl, SRQ: c.SRQ, Private: c.PrivateData,
		}); err != nil {
			id.breakQP()
			return err
		}
		id.become(idAccepted)
		return nil
	})
}

// Reject refuses a CONNECT_REQUEST; private data, at most 148 bytes, says why.
// No event follows. It waits for a turn of the device to end.
//
// Implements: rdma_reject.
func (id *cmID) Reject(private []byte) error {
	const op = "rdma_reject"
	id.api.Lock()
	defer id.api.Unlock()
	if id.datagrams() {
		return id.answer(op, cm.SIDRReject, &verbs.ConnParam{PrivateData: private})
	}
	if len(private) > verbs.MaxPrivateReject {
		return id.refuse(op, "%d bytes of private data, at most %d", len(private), verbs.MaxPrivateReject)
	}
	return id.exclusive(op, []idState{idAsked}, func(now time.Duration) error {
		id.become(idEnded)
		id.breakQP()
		return id.conn.Reject(now, cm.RejConsumer, private)
	})
}

// Disconnect moves the queue pair to ERR and tells the peer. DISCONNECTED
// follows on both sides, then TIMEWAIT_EXIT. On a connection that the peer has
// ended it only moves the queue pair: the peer has its answer. It waits for a turn
// of the device to end.
//
// Implements: rdma_disconnect.
func (id *cmID) Disconnect() error {
	const op = "rdma_disconnect"
	id.api.Lock()
	defer id.api.Unlock()
	if id.datagrams() {
		return id.refuse(op, "nothing is connected in port space UDP")
	}
	if s, _, closed := id.look(); !closed && s != idAccepted && s != idEstablished && s != idEnded {
		return opError(op, id.String(), syscall.ENOTCONN, "%w: the identifier is in state %v", verbs.ErrInvalid, s)
	}
	return id.exclusive(op, []idState{idAccepted, idEstablished, idEnded}, func(now time.Duration) error {
		id.breakQP()
		s, _, _ := id.look()
		if s == idEnded {
			return nil
		}
		id.become(idEnded)
		return id.conn.Disconnect(now, nil)
	})
}
