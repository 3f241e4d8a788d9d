//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// SetLocalECE sets the options that Connect or Accept sends. Queue pairs of CreateQP offer none.
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
	var e C.struct_vb_ece
	err := id.locked(op, func() syscall.Errno { return syscall.Errno(C.shim_get_remote_ece(id.t, id.c, &e)) })
	return verbs.ECE{Vendor: uint32(e.vendor_id), Options: uint32(e.options)}, err
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

// offerECE gives librdmacm the options to send, if they are for this queue pair. Under api.
func (id *cmID) offerECE() syscall.Errno {
	if id.qp != nil || id.ece.Vendor == 0 {
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
