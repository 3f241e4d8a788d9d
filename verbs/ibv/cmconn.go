//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"bytes"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

const (
	// maxDepth requests as many READs and atomics as the device supports. Implements:
	// RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH.
	maxDepth = 0xff
	// maxRetry is the largest 3-bit value.
	maxRetry = 7
	// maxPrivateSIDR is the limit of private data of an answer in port space UDP, a SIDR response
	// (IBTA table 119).
	maxPrivateSIDR = 136
)

// defaultParam replaces a nil parameter.
var defaultParam = verbs.ConnParam{
	ResponderResources: maxDepth, InitiatorDepth: maxDepth, RetryCount: maxRetry, RNRRetryCount: maxRetry,
}

// recordOffer records the offer of a CONNECT_REQUEST.
func (id *cmID) recordOffer(p *verbs.ConnParam) {
	id.api.Lock()
	defer id.api.Unlock()
	id.state = idAsked
	id.offer = *p
	id.offer.PrivateData = nil
}

// param checks p and converts it for C. Under api.
func (id *cmID) param(op string, p *verbs.ConnParam, private int) (c C.struct_vb_rdma_conn_param, data unsafe.Pointer, err error) {
	if p == nil {
		if id.qp == nil {
			return c, nil, id.refuse(op, "without a queue pair its number must be given")
		}
		p = &defaultParam
	}
	switch {
	case len(p.PrivateData) > private:
		return c, nil, id.refuse(op, "%d bytes of private data, at most %d", len(p.PrivateData), private)
	case p.RetryCount > maxRetry || p.RNRRetryCount > maxRetry:
		return c, nil, id.refuse(op, "retry counts of %d and %d, at most %d", p.RetryCount, p.RNRRetryCount, maxRetry)
	}
	c = C.struct_vb_rdma_conn_param{
		private_data_len: C.uint8_t(len(p.PrivateData)), responder_resources: C.uint8_t(p.ResponderResources),
		initiator_depth: C.uint8_t(p.InitiatorDepth), retry_count: C.uint8_t(p.RetryCount),
		rnr_retry_count: C.uint8_t(p.RNRRetryCount), qp_num: C.uint32_t(p.QPNum),
	}
	if p.FlowControl {
		c.flow_control = 1
	}
	srq := p.SRQ
	if id.qp != nil {
		c.qp_num, srq = C.uint32_t(id.qp.num), id.qp.init.SRQ != nil
	}
	if srq {
		c.srq = 1
	}
	return c, copyIn(p.PrivateData), nil
}

// copyIn copies private data for C, because the user's slice may lie in a structure that holds Go
// pointers, which cgo does not pass to C.
func copyIn(data []byte) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(bytes.Clone(data)))
}

// Connect sends the request. The queue pair belongs to another context than librdmacm's, so the
// request carries its number, and the answer comes back as CONNECT_RESPONSE, which becomes
// ESTABLISHED in [cmID.react].
//
// Implements: rdma_connect.
func (id *cmID) Connect(p *verbs.ConnParam) error {
	const op = "rdma_connect"
	if err := id.bound(op); err != nil {
		return err
	}
	id.api.Lock()
	defer id.api.Unlock()
	private := verbs.MaxPrivateConnect
	_, ib := id.IBAddrs()
	switch named := ib != (verbs.IBAddr{}); {
	case named && id.datagrams():
		private = verbs.MaxPrivateUDPIB
	case named:
		private = verbs.MaxPrivateConnectIB
	case id.datagrams():
		private = verbs.MaxPrivateUDP
	}
	c, data, err := id.param(op, p, private)
	if err != nil {
		return err
	}
	if id.state != idIdle {
		return id.refuse(op, "the identifier has a connection, or had one")
	}
	id.retries = uint8(c.retry_count)
	id.held = p != nil && p.HoldResponse
	return id.locked(op, func() syscall.Errno {
		if e := id.offerECE(); e != 0 {
			return e
		}
		return syscall.Errno(C.shim_connect(id.t, id.c, &c, data))
	})
}

// Accept answers a CONNECT_REQUEST, or establishes after a CONNECT_RESPONSE. The agreed depths
// are at most those of the peer's offer.
//
// Implements: rdma_accept, with the steps that librdmacm takes for a queue pair of its own
// (rdma_accept in librdmacm/cma.c); rdma_establish.
func (id *cmID) Accept(p *verbs.ConnParam) error {
	const op = "rdma_accept"
	id.api.Lock()
	defer id.api.Unlock()
	if id.state == idReplied {
		return id.locked("rdma_establish", id.establish)
	}
	if id.state != idAsked && !id.isClosed() {
		return id.refuse(op, "there is no request to answer")
	}
	private := verbs.MaxPrivateAccept
	if id.datagrams() {
		private = maxPrivateSIDR
	}
	c, data, err := id.param(op, p, private)
	if err != nil {
		return err
	}
	if !id.datagrams() {
		c.responder_resources = min(c.responder_resources, C.uint8_t(id.offer.ResponderResources))
		c.initiator_depth = min(c.initiator_depth, C.uint8_t(id.offer.InitiatorDepth))
	}
	id.retries = uint8(c.retry_count)
	return id.locked(op, func() syscall.Errno {
		if id.qp != nil && !id.datagrams() {
			if e := id.ready(uint8(c.responder_resources), uint8(c.initiator_depth)); e != 0 {
				return e
			}
		}
		e := id.offerECE()
		if e == 0 {
			e = syscall.Errno(C.shim_accept(id.t, id.c, &c, data))
		}
		if e != 0 {
			id.ended()
			return e
		}
		id.state = idConnected
		return 0
	})
}

// establish moves the queue pair, if the identifier has one, and completes the handshake of the
// connecting end. Under api.
func (id *cmID) establish() syscall.Errno {
	e := syscall.Errno(0)
	if id.qp != nil {
		if e = id.answeredECE(); e == 0 {
			e = id.ready(maxDepth, maxDepth)
		}
	}
	if e == 0 {
		e = syscall.Errno(C.shim_establish(id.t, id.c))
	}
	switch {
	case e == 0:
		id.state = idConnected
	case id.qp != nil:
		id.ended()
		id.broken = true
	}
	return e
}

// Disconnect moves the queue pair to ERR and notifies the peer, or answers the peer's disconnect.
// On a connection that has ended it does nothing.
//
// Implements: rdma_disconnect.
func (id *cmID) Disconnect() error {
	const op = "rdma_disconnect"
	id.api.Lock()
	defer id.api.Unlock()
	if id.isClosed() || id.state == idEnded {
		return nil
	}
	if id.state != idConnected && id.state != idLeft {
		return opError(op, id.label, syscall.ENOTCONN, "%w: there is no connection", verbs.ErrInvalid)
	}
	left, q := id.state == idLeft, id.qp
	id.state = idEnded
	if q != nil {
		id.api.Unlock() // the peer's disconnect, which may cross, must not wait for the firmware
		q.fail()
		id.api.Lock()
		if id.isClosed() { // which has disconnected
			return nil
		}
		left = left || id.state == idLeft
		id.state = idEnded
	}
	return id.locked(op, func() syscall.Errno {
		e := syscall.Errno(C.shim_disconnect(id.t, id.c))
		if left && e == syscall.EINVAL {
			return 0 // the peer has its answer already
		}
		return e
	})
}
