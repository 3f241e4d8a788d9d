package soft

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	// ackDelay is the delay that the device declares, a code of 134 ms: the minimum and default
	// ACK timeout of a connection. Eight of them are the time that a peer may get no processor; on
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
func (id *cmID) ackTimeout() uint8 { return max(id.timeout, ackDelay) }

// peerEnd holds the agreed parameters of a connection, seen from this side; timeout and retry are
// this side's own.
type peerEnd struct {
	path             wire.Path
	qpn, psn         uint32
	mtuCode          uint8
	timeout          uint8
	retry, rnrRetry  uint8
	resources, depth uint8 // served by this side, requested by this side
	trafficClass     uint8
}

// ready moves the queue pair from INIT to RTS. If that fails, the queue pair is in ERR. The
// caller holds the device's token.
//
// Implements: ucma_modify_qp_rtr and ucma_modify_qp_rts of librdmacm/cma.c, with the attributes
// of the kernel's ib_cm_init_qp_attr.
func (id *cmID) ready(e *peerEnd) error {
	mtu, ok := cm.MTUFromCode(e.mtuCode)
	if !ok {
		return fmt.Errorf("%w: path MTU code %d", verbs.ErrInvalid, e.mtuCode)
	}
	id.qp.path = e.path
	err := id.qp.modify(&verbs.QPAttr{
		State: verbs.QPSRTR, PathMTU: mtu, DestQPN: e.qpn, RQPSN: id.psn, MaxDestRdAtomic: e.resources,
		MinRNRTimer: cmRNRTimer,
		AH:          id.qp.dev.wayTo(&e.path, e.trafficClass),
	}, rtrMask)
	if err == nil {
		err = id.qp.modify(&verbs.QPAttr{
			State: verbs.QPSRTS, SQPSN: e.psn, MaxRdAtomic: e.depth,
			Timeout: e.timeout, RetryCnt: e.retry, RNRRetry: e.rnrRetry,
		}, rtsMask)
	}
	if err != nil {
		id.breakQP()
	}
	return err
}

// breakQP moves a connected queue pair to ERR from any state. The caller holds the device's
// token.
func (id *cmID) breakQP() {
	if id.qp != nil && !id.datagrams() { // a datagram queue pair serves other peers too
		id.qp.enterError()
	}
}
