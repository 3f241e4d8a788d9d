package soft

import (
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// maxDepth requests as many READs and atomics as the device supports.
//
// Implements: RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH.
const maxDepth = 0xff

// CreateQP makes a queue pair on the identifier's device. It moves it to INIT, so that receives can
// be posted; in port space UDP to RTS, with queue key UDPQKey. The
// identifier moves the queue pair on when connecting, and destroys it when closed. CreateQP waits
// for a running Progress call of the device.
//
// Implements: rdma_create_qp.
func (id *cmID) CreateQP(pd verbs.PD, init *verbs.QPInitAttr) error {
	const op = "rdma_create_qp"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.inState(op, idBound, idListening, idAddrResolved, idRouteResolved, idAsked); err != nil {
		return err
	}
	switch s, dev, _ := id.look(); {
	case dev == nil:
		return id.refuse(op, "the identifier is not bound to a device")
	case s == idListening && !id.datagrams():
		return id.refuse(op, "a listener has a queue pair in port space UDP only")
	case init.Type != id.kind:
		return id.refuse(op, "a queue pair of type %v, the identifier is for %v", init.Type, id.kind)
	case id.QP() != nil:
		return id.refuse(op, "it has %v already", id.QP())
	}
	q, handle, err := id.newQP(pd, init)
	if err != nil {
		return err
	}
	id.dev.exclusive(func() {
		if id.datagrams() {
			err = readyUD(q)
		} else {
			err = q.modify(initAttr, initMask)
		}
		if err != nil {
			_ = destroyQP(q, handle) // new, so nothing keeps it alive
			return
		}
		if !id.datagrams() {
			id.dev.cm.byQP[q] = id
		}
		id.mu.Lock()
		id.qp, id.handle = q, handle
		id.mu.Unlock()
	})
	return err
}

// isXRC reports whether queue pairs of type k are XRC's.
func isXRC(k verbs.QPType) bool { return k == verbs.QPTXRCSend || k == verbs.QPTXRCRecv }

// newQP makes a queue pair, and for XRC_RECV its handle.
func (id *cmID) newQP(pd verbs.PD, init *verbs.QPInitAttr) (*queuePair, *xrcReceiver, error) {
	const op = "rdma_create_qp"
	if init.Type == verbs.QPTXRCRecv {
		x, ok := init.XRCD.(*xrcd)
		if !ok || x == nil || x.ctx.dev != id.dev {
			return nil, nil, id.refuse(op, "%v is no XRC domain of %s", init.XRCD, id.dev.cfg.Name)
		}
		made, err := x.CreateQP(init)
		if err != nil {
			return nil, nil, err
		}
		r := made.(*xrcReceiver)
		return r.q, r, nil
	}
	own, ok := pd.(*protectionDomain)
	if !ok || own == nil || own.ctx.dev != id.dev {
		return nil, nil, id.refuse(op, "%v is no protection domain of %s", pd, id.dev.cfg.Name)
	}
	made, err := own.CreateQP(init)
	if err != nil {
		return nil, nil, err
	}
	return made.(*queuePair), nil, nil
}

// destroyQP destroys a queue pair, or its handle if it has one. The caller holds the device's token.
func destroyQP(q *queuePair, handle *xrcReceiver) error {
	if handle != nil {
		return handle.destroy()
	}
	return q.destroy()
}

// depth returns the agreed number of READs and atomics: the least of this side's request, the
// peer's offer and the device's limit.
func depth(asked, offered uint8, d *device) uint8 {
	return uint8(min(int(asked), int(offered), d.cfg.Limits.MaxRdAtomic))
}

// checkParam refuses parameters that cannot be sent or served. p may be nil when there is a queue
// pair; then defaults applies: as many READs as possible, retry counts of 7.
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

// Connect sends the connection request. With a queue pair the outcome is ESTABLISHED, with the
// queue pair in RTS, or REJECTED, UNREACHABLE or CONNECT_ERROR. Without one it is
// CONNECT_RESPONSE: the user readies its queue pair, and Accept establishes the connection. p may
// be nil when there is a queue pair; a depth of 0xff asks for the maximum. Connect waits for a
// running Progress call of the device.
//
// The path has the device's MTU. A peer with a smaller one refuses, and the request is repeated
// with the smaller MTU. The local ACK timeout of this side is the one set with SetAckTimeout, or
// verbs.DefaultAckTimeout, at least code 15 (134 ms). The request carries it, and the peer uses its own.
//
// In port space UDP, Connect asks for the listener's queue pair, which ESTABLISHED reports. Only
// the private data of p is used, at most 180 bytes, and p may be nil.
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
	private := verbs.MaxPrivateConnect
	if id.ib {
		private = verbs.MaxPrivateConnectIB
	}
	c, err := id.checkParam(op, p, private, defaultParam)
	if err != nil {
		return err
	}
	return id.exclusive(op, []idState{idRouteResolved}, func(now time.Duration) error {
		d := id.dev
		id.connect = cm.ConnectParam{
			Dst: id.path, ServiceID: id.service(),
			QPN: c.QPNum, PSN: id.firstPSN(), ECE: id.localECE(), XRC: isXRC(id.kind),
			ResponderResources: depth(c.ResponderResources, maxDepth, d), InitiatorDepth: depth(c.InitiatorDepth, maxDepth, d),
			RetryCount: c.RetryCount, RNRRetry: c.RNRRetryCount, FlowControl: c.FlowControl, SRQ: c.SRQ,
			MTU: id.mtu, AckTimeout: id.ackTimeout(), TrafficClass: id.tos, PKey: wire.DefaultPKey,
		}
		id.connect.Private = append(id.header(), c.PrivateData...)
		conn, err := d.cm.machine.Connect(now, &id.connect, id)
		if err != nil {
			return err
		}
		id.conn = conn
		id.become(idConnecting)
		return nil
	})
}

// Accept accepts a CONNECT_REQUEST: it moves the queue pair to RTS and sends the reply.
// ESTABLISHED follows, or REJECTED, UNREACHABLE, DISCONNECTED. p may be nil when there is a queue
// pair; the agreed depths are at most those the peer asked for. On the active side, after
// CONNECT_RESPONSE, it establishes the connection. It waits for a running Progress call of the
// device.
//
// In port space UDP it sends the answer, with at most 136 bytes of private data; no event
// follows.
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
		return id.exclusive(op, []idState{idReplied}, func(now time.Duration) error {
			if err := id.conn.SendRTU(now, nil); err != nil {
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
		e := &id.agreed
		e.timeout, e.retry, e.waits = id.ackTimeout(), c.RetryCount, c.RNRRetryCount == verbs.RNRRetryInfinite
		e.resources, e.depth = depth(c.ResponderResources, id.req.InitiatorDepth, id.dev), depth(c.InitiatorDepth, id.req.ResponderResources, id.dev)
		if id.qp != nil {
			if err := id.ready(); err != nil {
				return err
			}
		}
		if err := id.conn.Accept(now, &cm.AcceptParam{
			QPN: c.QPNum, PSN: id.firstPSN(), ResponderResources: e.resources, InitiatorDepth: e.depth,
			ECE:      verbs.ECE{Vendor: id.req.Vendor, Options: id.localECE().Options},
			RNRRetry: c.RNRRetryCount, FlowControl: c.FlowControl, SRQ: c.SRQ, Private: c.PrivateData,
		}); err != nil {
			id.breakQP()
			return err
		}
		id.become(idAccepted)
		return nil
	})
}

// Disconnect moves the queue pair to ERR and informs the peer. DISCONNECTED follows on both
// sides, then TIMEWAIT_EXIT. If the peer has already disconnected, it only moves the queue pair:
// the peer has its answer. It waits for a running Progress call of the device.
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
