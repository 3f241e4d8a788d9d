//go:build linux && cgo && !portable

package ibv

// #include "calls_more.h"
import "C"

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// DataInOrder returns the order in which the data of one message is written. ErrNotSupported
// where the library is older than rdma-core 36, which introduced the call (IBVERBS_1.14). The
// flag that requests all guarantees came with 46. A library from 36 to 45 passes it to the
// driver, and the only driver that implements the call there returns 0 for any flag
// (providers/mlx5/verbs.c): no guarantee.
//
// Implements: ibv_query_qp_data_in_order.
func (q *queuePair) DataInOrder(op verbs.WROpcode) (verbs.DataOrder, error) {
	var order C.uint32_t
	err := q.use("ibv_query_qp_data_in_order", func() syscall.Errno {
		return syscall.Errno(C.shim_data_in_order(q.ctx.t, q.c, C.vb_enum(op), &order))
	})
	return verbs.DataOrder(order), err
}

// QueryECE reads the options that the queue pair offers, or the agreed ones.
//
// Implements: ibv_query_ece.
func (q *queuePair) QueryECE() (verbs.ECE, error) {
	var e C.struct_vb_ece
	if err := q.use("ibv_query_ece", func() syscall.Errno {
		return syscall.Errno(C.shim_query_ece(q.ctx.t, q.c, &e))
	}); err != nil {
		return verbs.ECE{}, err
	}
	return verbs.ECE{Vendor: uint32(e.vendor_id), Options: uint32(e.options)}, nil
}

// SetECE requests options and returns the ones in use.
//
// Implements: ibv_set_ece.
func (q *queuePair) SetECE(want verbs.ECE) (verbs.ECE, error) {
	e := C.struct_vb_ece{vendor_id: C.uint32_t(want.Vendor), options: C.uint32_t(want.Options)}
	if err := q.use("ibv_set_ece", func() syscall.Errno {
		return syscall.Errno(C.shim_set_ece(q.ctx.t, q.c, &e))
	}); err != nil {
		return verbs.ECE{}, err
	}
	return verbs.ECE{Vendor: uint32(e.vendor_id), Options: uint32(e.options)}, nil
}
