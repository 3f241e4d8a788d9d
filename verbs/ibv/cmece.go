//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
// #include "calls_more.h"
import "C"

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// SetLocalECE sets the options that Connect or Accept sends. A queue pair of CreateQP brings its own.
//
// Implements: rdma_set_local_ece.
func (id *cmID) SetLocalECE(e verbs.ECE) error {
	const op = "rdma_set_local_ece"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.checkECE(op); err != nil {
		return err
	}
	if e.Vendor == 0 || e.Vendor > 1<<24-1 {
		return id.refuse(op, "vendor 0x%x", e.Vendor)
	}
	return id.locked(op, func() syscall.Errno {
		id.ece = e
		return 0
	})
}

// RemoteECE returns the options that the peer sent.
//
// Implements: rdma_get_remote_ece.
func (id *cmID) RemoteECE() (verbs.ECE, error) {
	const op = "rdma_get_remote_ece"
	id.api.Lock()
	defer id.api.Unlock()
	if err := id.checkECE(op); err != nil {
		return verbs.ECE{}, err
	}
	var e verbs.ECE
	err := id.locked(op, func() (errno syscall.Errno) {
		e, errno = id.peerECE()
		return errno
	})
	return e, err
}

// checkECE refuses a call about options. librdmacm knows no queue pair of the identifier, so the rule that it must
// have none is kept here. Under api.
func (id *cmID) checkECE(op string) error {
	switch {
	case id.qp != nil || id.datagrams():
		return id.refuse(op, "the options are those of a connected queue pair of the program's own")
	case C.shim_has_ece(id.t) == 0:
		return failed(op, id.label, syscall.EOPNOTSUPP)
	}
	return nil
}

// A queue pair of CreateQP and its peer's agree on options as those of librdmacm do:
//
//	dialing    CreateQP: the device's options  Connect: sends them  CONNECT_RESPONSE: sets the peer's
//	accepting  CreateQP: sets the peer's, reads what the device takes of them  Accept: sends that
//
// A peer of another vendor, or without options, stands for no options.

// initECE makes the options of a new queue pair those to send, and agrees to those of a request. It
// returns the options to send. Under api.
//
// Implements: init_ece of librdmacm/cma.c.
func (id *cmID) initECE(q *queuePair) (own verbs.ECE, errno syscall.Errno) {
	if id.datagrams() || C.shim_has_ece(id.t) == 0 {
		return own, 0
	}
	if own, errno = q.ece(); errno != 0 || id.state != idAsked {
		return own, errno
	}
	peer, errno := id.peerECE()
	if errno != 0 || peer.Vendor == 0 {
		return own, errno
	}
	if peer.Vendor != own.Vendor {
		peer = verbs.ECE{Vendor: own.Vendor}
	}
	return own, q.agreeECE(peer)
}

// tellECE reads what the device takes of the options of a request, once the queue pair is in INIT. Under api.
//
// Implements: set_local_ece of librdmacm/cma.c.
func (id *cmID) tellECE(q *queuePair, own verbs.ECE) (verbs.ECE, syscall.Errno) {
	if own.Vendor == 0 || id.state != idAsked {
		return own, 0
	}
	return q.ece()
}

// answeredECE agrees to the options of an answer, before the queue pair is moved to RTR. Under api.
//
// Implements: ucma_process_conn_resp_ece of librdmacm/cma.c.
func (id *cmID) answeredECE() syscall.Errno {
	if id.ece.Vendor == 0 { // nothing was offered
		return 0
	}
	peer, errno := id.peerECE()
	switch {
	case errno != 0:
		return errno
	case peer.Vendor == 0:
		peer = verbs.ECE{Vendor: id.ece.Vendor}
	case peer.Vendor != id.ece.Vendor: // an answer has the vendor of the request
		return syscall.EINVAL
	}
	return id.qp.agreeECE(peer)
}

// peerECE returns the options that the peer sent. Under api.
func (id *cmID) peerECE() (verbs.ECE, syscall.Errno) {
	var e C.struct_vb_ece
	errno := syscall.Errno(C.shim_get_remote_ece(id.t, id.c, &e))
	return verbs.ECE{Vendor: uint32(e.vendor_id), Options: uint32(e.options)}, errno
}

// ece returns the options of the queue pair; none where the device or the library has none.
func (q *queuePair) ece() (verbs.ECE, syscall.Errno) {
	var e C.struct_vb_ece
	errno := q.withoutECE("ibv_query_ece", func() C.int { return C.shim_query_ece(q.ctx.t, q.c, &e) })
	return verbs.ECE{Vendor: uint32(e.vendor_id), Options: uint32(e.options)}, errno
}

// agreeECE sets the options that the queue pair may use with its peer.
func (q *queuePair) agreeECE(peer verbs.ECE) syscall.Errno {
	e := C.struct_vb_ece{vendor_id: C.uint32_t(peer.Vendor), options: C.uint32_t(peer.Options)}
	return q.withoutECE("ibv_set_ece", func() C.int { return C.shim_set_ece(q.ctx.t, q.c, &e) })
}

// withoutECE makes a call about options, which may not be supported.
func (q *queuePair) withoutECE(op string, call func() C.int) syscall.Errno {
	errno := syscall.EBADF // as in step
	_ = q.use(op, func() syscall.Errno {
		if errno = syscall.Errno(call()); errno == syscall.EOPNOTSUPP {
			errno = 0
		}
		return errno
	})
	return errno
}

// offerECE gives librdmacm the options to send. Under api.
func (id *cmID) offerECE() syscall.Errno {
	if id.ece.Vendor == 0 {
		return 0
	}
	e := C.struct_vb_ece{vendor_id: C.uint32_t(id.ece.Vendor), options: C.uint32_t(id.ece.Options)}
	return syscall.Errno(C.shim_set_local_ece(id.t, id.c, &e))
}

// Reject refuses a CONNECT_REQUEST.
//
// Implements: rdma_reject.
func (id *cmID) Reject(private []byte) error {
	return id.reject("rdma_reject", private, func(data unsafe.Pointer, n C.uint8_t) C.int { return C.shim_reject(id.t, id.c, data, n) })
}

// RejectECE is Reject with reason RejVendorOption.
//
// Implements: rdma_reject_ece.
func (id *cmID) RejectECE(private []byte) error {
	return id.reject("rdma_reject_ece", private, func(data unsafe.Pointer, n C.uint8_t) C.int { return C.shim_reject_ece(id.t, id.c, data, n) })
}

func (id *cmID) reject(op string, private []byte, call func(data unsafe.Pointer, n C.uint8_t) C.int) error {
	id.api.Lock()
	defer id.api.Unlock()
	if len(private) > verbs.MaxPrivateReject {
		return id.refuse(op, "%d bytes of private data, at most %d", len(private), verbs.MaxPrivateReject)
	}
	if id.state != idAsked && !id.isClosed() {
		return id.refuse(op, "there is no request to answer")
	}
	data := copyIn(private)
	return id.locked(op, func() syscall.Errno {
		e := syscall.Errno(call(data, C.uint8_t(len(private))))
		if e == 0 {
			id.ended()
		}
		return e
	})
}

// Notify reports COMM_EST of a queue pair.
//
// Implements: rdma_notify.
func (id *cmID) Notify(event verbs.AsyncEventType) error {
	const op = "rdma_notify"
	if event != verbs.EventCommEst || id.datagrams() {
		return id.refuse(op, "event %v in port space 0x%04x", event, uint16(id.ps))
	}
	if err := id.bound(op); err != nil {
		return err
	}
	err := id.call(op, func() syscall.Errno { return syscall.Errno(C.shim_notify(id.t, id.c, C.vb_enum(event))) })
	if e, ok := errors.AsType[*verbs.OpError](err); ok && e.Errno == syscall.EISCONN {
		e.Err = verbs.ErrInvalid
	}
	return err
}
