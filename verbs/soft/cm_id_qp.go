package soft

import (
	"cmp"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	// ackDelay is the delay that the device declares, a code of 134 ms: the minimum of the ACK
	// timeout of a connection. Eight of them are the time that a peer may get no processor; on
	// a loaded machine half a second was seen. A loss is noticed earlier: see roundTrip.
	ackDelay = 15
	// cmRNRTimer is 0.64 ms. The kernel's RDMA CM uses code 0, which is 655 ms for each RNR NAK
	// (rdma_connect(3)) and suits the slowest adapter; here a late receive is late by
	// microseconds.
	cmRNRTimer = 12
)

// cmAccess is the access that a connected queue pair permits to its peer; the regions' own
// permissions decide. It is that of rdma_init_qp_attr, with FLUSH.
const cmAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessFlushGlobal | verbs.AccessFlushPersistent

var initAttr = &verbs.QPAttr{State: verbs.QPSInit, Port: portNumber, AccessFlags: cmAccess}

const (
	initMask = verbs.QPMState | verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMAccessFlags
	rtrMask  = verbs.QPMState | verbs.QPMAV | verbs.QPMPathMTU | verbs.QPMDestQPN | verbs.QPMRQPSN |
		verbs.QPMMaxDestRdAtomic | verbs.QPMMinRNRTimer
	rtsMask = verbs.QPMState | verbs.QPMTimeout | verbs.QPMRetryCnt | verbs.QPMRNRRetry | verbs.QPMSQPSN |
		verbs.QPMMaxQPRdAtomic
)

// ackTimeout returns the code of this end's local ACK timeout. Only SetAckTimeout sets it, never
// the peer's request. The caller holds api.
func (id *cmID) ackTimeout() uint8 { return max(cmp.Or(id.timeout, verbs.DefaultAckTimeout), ackDelay) }

// peerEnd holds the parameters of a connection, seen from this side: those of the request until Accept agrees on
// others. timeout and retry are this side's own.
type peerEnd struct {
	path             wire.Path
	qpn, psn         uint32
	mtuCode          uint8
	timeout          uint8
	retry, rnrRetry  uint8
	resources, depth uint8 // served by this side, requested by this side
	trafficClass     uint8
	waits            bool // this side tells the peer to repeat without end after RNR NAKs
}

// offered returns the parameters of a request. The caller holds the device's token.
func (d *device) offered(path wire.Path, q *cm.REQ) peerEnd {
	return peerEnd{
		path: path, qpn: q.QPN, psn: q.PSN, mtuCode: q.PathMTU, timeout: ackDelay, retry: maxRetry, rnrRetry: q.RNRRetry,
		trafficClass: q.Primary.TrafficClass &^ verbs.ECNMask,
		resources:    depth(maxDepth, q.InitiatorDepth, d), depth: depth(maxDepth, q.ResponderResources, d),
	}
}

// firstPSN returns the first PSN that this side receives. It draws it at the first call, since the program may ask
// for it before Accept sends it. The caller holds the device's token.
func (id *cmID) firstPSN() uint32 {
	for id.psn == 0 {
		id.psn = id.dev.cm.psn()
	}
	return id.psn
}

// rtr and rts return the attributes of those steps. The caller holds the device's token.
//
// Implements: ib_cm_init_qp_attr (kernel cm.c), except the values that are this side's own.
func (id *cmID) rtr() (verbs.QPAttr, error) {
	e := &id.agreed
	mtu, ok := cm.MTUFromCode(e.mtuCode)
	if !ok {
		return verbs.QPAttr{}, fmt.Errorf("%w: path MTU code %d", verbs.ErrInvalid, e.mtuCode)
	}
	return verbs.QPAttr{
		State: verbs.QPSRTR, PathMTU: mtu, DestQPN: e.qpn, RQPSN: id.firstPSN(), MaxDestRdAtomic: e.resources,
		MinRNRTimer: cmRNRTimer, AH: id.dev.wayTo(&e.path, e.trafficClass),
	}, nil
}

func (id *cmID) rts() verbs.QPAttr {
	e := &id.agreed
	return verbs.QPAttr{
		State: verbs.QPSRTS, SQPSN: e.psn, MaxRdAtomic: e.depth,
		Timeout: e.timeout, RetryCnt: e.retry, RNRRetry: e.rnrRetry,
	}
}

// rtrMask and rtsMask return the attributes of those steps for the type of the queue pair: XRC_SEND responds to
// nothing, and XRC_RECV requests nothing.
//
// Implements: cm_init_qp_rtr_attr and cm_init_qp_rts_attr (kernel cm.c).
func (id *cmID) rtrMask() verbs.QPAttrMask {
	if id.kind == verbs.QPTXRCSend {
		return rtrMask &^ (verbs.QPMMaxDestRdAtomic | verbs.QPMMinRNRTimer)
	}
	return rtrMask
}

func (id *cmID) rtsMask() verbs.QPAttrMask {
	if id.kind == verbs.QPTXRCRecv {
		return verbs.QPMState | verbs.QPMTimeout | verbs.QPMSQPSN
	}
	return rtsMask
}

// ready moves the queue pair from INIT to RTS. If that fails, the queue pair is in ERR. The
// caller holds the device's token.
//
// Implements: ucma_modify_qp_rtr and ucma_modify_qp_rts of librdmacm/cma.c.
func (id *cmID) ready() error {
	id.qp.path, id.qp.peerWaits = id.agreed.path, id.agreed.waits
	a, err := id.rtr()
	if err == nil {
		err = id.qp.modify(&a, id.rtrMask())
	}
	if err == nil {
		a = id.rts()
		err = id.qp.modify(&a, id.rtsMask())
	}
	if err != nil {
		id.breakQP()
	}
	return err
}

// InitQPAttr returns the attributes of a step of the program's own queue pair. Between processes the accepting end needs
// a queue pair of CreateQP, whose packets come from the listener's socket. It waits for a running Progress call of the
// device.
//
// Implements: rdma_init_qp_attr.
func (id *cmID) InitQPAttr(to verbs.QPState) (a verbs.QPAttr, mask verbs.QPAttrMask, err error) {
	const op = "rdma_init_qp_attr"
	id.api.Lock()
	defer id.api.Unlock()
	if to != verbs.QPSInit && to != verbs.QPSRTR && to != verbs.QPSRTS {
		return a, 0, id.refuse(op, "there are no attributes for %v", to)
	}
	states := []idState{idAsked, idReplied, idAccepted, idEstablished}
	if to == verbs.QPSInit || id.datagrams() {
		states = append(states, idBound, idListening, idAddrResolved, idRouteResolved, idConnecting)
	}
	err = id.exclusive(op, states, func(time.Duration) (err error) {
		switch {
		case id.datagrams():
			a, mask = udAttr(to)
		case to == verbs.QPSInit:
			a, mask = *initAttr, initMask
		case to == verbs.QPSRTR:
			mask = id.rtrMask()
			a, err = id.rtr()
		default:
			if s, _, _ := id.look(); s == idAsked {
				id.agreed.timeout = id.ackTimeout()
			}
			a, mask = id.rts(), id.rtsMask()
		}
		return err
	})
	return a, mask, err
}

// breakQP moves a connected queue pair to ERR from any state. The caller holds the device's
// token.
func (id *cmID) breakQP() {
	if id.qp != nil && !id.datagrams() { // a datagram queue pair serves other peers too
		id.qp.enterError()
	}
}
