//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"encoding/binary"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// describe returns the name of a device that is not open.
func describe(t *verbsTable, d *C.struct_vb_device) verbs.DeviceInfo {
	name := C.GoString(C.shim_device_name(t, d))
	guid := C.shim_device_guid(t, d) // big-endian in memory
	return verbs.DeviceInfo{
		Name:      name,
		Transport: verbs.Transport(d.transport_type),
		GUID:      binary.BigEndian.Uint64((*[8]byte)(unsafe.Pointer(&guid))[:]),
		Node:      numaNode(system, name),
	}
}

// softRoCE reports whether an open device with these attributes is the kernel's software RNIC: a
// RoCE device without a vendor (Linux drivers/infiniband/sw/rxe/rxe_param.h, RXE_VENDOR_ID;
// kernels that still use 0 are taken for hardware).
func softRoCE(c *C.struct_vb_context, d *C.struct_vb_device_attr) bool {
	const noVendor = 0xffffff
	return c.device.transport_type == C.VB_TRANSPORT_IB && d.vendor_id == noVendor
}
