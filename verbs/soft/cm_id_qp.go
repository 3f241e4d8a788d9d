package soft

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
)

const (
	// ackDelay is the delay that a device claims, a code of 67 ms: the least ACK
	// timeout of a connection, and its default.
	// It must be well above what a descheduled goroutine costs (measured.md), and
	// eight of them are still less than a second.
	ackDelay = 14
	// cmRNRTimer is 0.64 ms. The kernel's RDMA CM takes code 0, which is
	// 655 ms for each RNR NAK (rdma_connect(3)) and meant for the worst
	// adapter; here a receive that is late is late by microseconds.
	cmRNRTimer = 12
)

// cmAccess is what peers may do through a connected queue pair; the regions'
// own permissions decide. As rdma_init_qp_attr gives it, with FLUSH.
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

// ackTimeout is the local ACK timeout of this end's queue pair, a code: what the
// consumer set, never what the peer asked for. The caller holds api.
func (id *cmID) ackTimeout() uint8 { return max(id.timeout, ackDelay) }

// peerEnd is what the two sides agreed on, seen from here; timeout and retry are
// this end's own.
type peerEnd struct {
	gid              verbs.GID
	qpn, psn         uint32
	mtuCode          uint8
	timeout          uint8
	retry, rnrRetry  uint8
	resources, depth uint8 // served here, asked from here
}

// ready moves the queue pair from INIT to RTS. Under the device's token. What
// fails leaves it in ERR.
//
// Implements: ucma_modify_qp_rtr and ucma_modify_qp_rts of librdmacm/cma.c,
// with the attributes of the kernel's ib_cm_init_qp_attr.
func (id *cmID) ready(e *peerEnd) error {
	mtu, ok := cm.MTUFromCode(e.mtuCode)
	if !ok {
		return fmt.Errorf("%w: path MTU code %d", verbs.ErrInvalid, e.mtuCode)
	}
	err := id.qp.modify(&verbs.QPAttr{
		State: verbs.QPSRTR, PathMTU: mtu, DestQPN: e.qpn, RQPSN: e.psn, MaxDestRdAtomic: e.resources,
		MinRNRTimer: cmRNRTimer,
		AH:          verbs.AHAttr{DGID: e.gid, HopLimit: 64, Port: portNumber},
	}, rtrMask)
	if err == nil {
		err = id.qp.modify(&verbs.QPAttr{
			State: verbs.QPSRTS, SQPSN: id.psn, MaxRdAtomic: e.depth,
			Timeout: e.timeout, RetryCnt: e.retry, RNRRetry: e.rnrRetry,
		}, rtsMask)
	}
	if err != nil {
		id.breakQP()
	}
	return err
}

// breakQP moves a connected queue pair to ERR, whatever it is in. Under the device's
// token.
func (id *cmID) breakQP() {
	if id.qp != nil && !id.datagrams() { // those go on to serve others
		id.qp.enterError()
	}
}
