//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// describe returns the name of a device that is not open.
func describe(t *verbsTable, d *C.struct_vb_device) verbs.DeviceInfo {
	name := C.GoString(C.shim_device_name(t, d))
	guid := C.shim_device_guid(t, d) // big-endian in memory
	return verbs.DeviceInfo{
		Name: name,
		GUID: binary.BigEndian.Uint64((*[8]byte)(unsafe.Pointer(&guid))[:]),
		Node: numaNode(system, name),
	}
}

// softRoCE reports whether an open device with these attributes is the kernel's software RNIC: a
// RoCE device without a vendor (Linux drivers/infiniband/sw/rxe/rxe_param.h, RXE_VENDOR_ID;
// kernels that still use 0 are taken for hardware).
func softRoCE(c *C.struct_vb_context, d *C.struct_vb_device_attr) bool {
	const noVendor = 0xffffff
	return c.device.transport_type == C.VB_TRANSPORT_IB && d.vendor_id == noVendor
}

// maxScan bounds the number of entries read from a port's address table. The kernel fills tables
// from the front; mlx5's have 256 entries.
const maxScan = 32

// addresses returns the IP addresses of the ports of an open device: those of RoCE, where an
// address makes a GID. It omits link-local ones, which identify no network. With an errno, op is
// the call that failed.
func addresses(t *verbsTable, c *C.struct_vb_context) (out []netip.Addr, op string, errno syscall.Errno) {
	if c.device.transport_type != C.VB_TRANSPORT_IB {
		return nil, "", 0
	}
	var d C.struct_vb_device_attr_ex
	if e := C.shim_query_device(t, c, &d); e != 0 {
		return nil, "ibv_query_device", syscall.Errno(e)
	}
	for port := C.uint8_t(1); port <= d.orig_attr.phys_port_cnt; port++ {
		var a C.struct_vb_port_attr
		if e := C.shim_query_port(t, c, port, &a); e != 0 {
			return nil, "ibv_query_port", syscall.Errno(e)
		}
		if a.link_layer != C.VB_LINK_LAYER_ETHERNET {
			continue
		}
		for i := range min(a.gid_tbl_len, maxScan) {
			var g verbs.GID
			if C.shim_query_gid(t, c, port, i, (*C.union_vb_gid)(unsafe.Pointer(&g))) != 0 {
				continue // an empty entry
			}
			if ip := g.Addr(); !ip.IsUnspecified() && !ip.IsLinkLocalUnicast() && !slices.Contains(out, ip) {
				out = append(out, ip)
			}
		}
	}
	return out, "", 0
}
