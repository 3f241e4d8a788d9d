//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// SetAckTimeout sets the local ACK timeout of this end, and makes the kernel send it to the peer,
// which Linux before 5.1 cannot.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_ACK_TIMEOUT.
func (id *cmID) SetAckTimeout(code uint8) error {
	const op = "rdma_set_option"
	if id.datagrams() || !verbs.AckTimeoutCode(code) {
		return id.refuse(op, "code %d of an ACK timeout in port space 0x%04x", code, uint16(id.ps))
	}
	return id.call(op, func() syscall.Errno {
		e := syscall.Errno(C.shim_ack_timeout(id.t, id.c, C.uint8_t(code)))
		if e == syscall.ENOSYS { // the peer is then not notified
			e = 0
		}
		if e == 0 {
			id.timeout = code
		}
		return e
	})
}

// SetTOS sets the type of service of the packets of a connection. The kernel copies it into the path of the
// route, and from there into the request. Of an identifier that accepts a request without one it is
// that of this end (see ready). iWARP has it of a listener (cma.c, cma_iw_listen).
//
// Implements: rdma_set_option with RDMA_OPTION_ID_TOS.
func (id *cmID) SetTOS(tos uint8) error {
	return id.call("rdma_set_option", func() syscall.Errno {
		e := syscall.Errno(C.shim_tos(id.t, id.c, C.uint8_t(tos)))
		if e == 0 {
			id.tos = tos
		}
		return e
	})
}

// SetReuseAddr permits or forbids sharing the port with others that permit it.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_REUSEADDR.
func (id *cmID) SetReuseAddr(reuse bool) error {
	return id.option(C.VB_RDMA_OPTION_ID_REUSEADDR, reuse)
}

// SetAFOnly restricts a listener to the family of its address.
//
// Implements: rdma_set_option with RDMA_OPTION_ID_AFONLY.
func (id *cmID) SetAFOnly(only bool) error { return id.option(C.VB_RDMA_OPTION_ID_AFONLY, only) }

func (id *cmID) option(name C.int, on bool) error {
	value := C.int(0)
	if on {
		value = 1
	}
	return id.call("rdma_set_option", func() syscall.Errno { return syscall.Errno(C.shim_option(id.t, id.c, name, value)) })
}
