//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// QueryDevice reads the limits. The first call makes queue pairs to find out the types; see qpTypes.
//
// Implements: ibv_query_device_ex, and ibv_query_device where that is missing.
func (c *deviceContext) QueryDevice() (verbs.DeviceAttr, error) {
	var x C.struct_vb_device_attr_ex
	if err := c.use("ibv_query_device", func() syscall.Errno {
		return syscall.Errno(C.shim_query_device(c.t, c.c, &x))
	}); err != nil {
		return verbs.DeviceAttr{}, err
	}
	a := &x.orig_attr
	d := verbs.DeviceAttr{
		FWVersion: C.GoString(&a.fw_ver[0]), VendorID: uint32(a.vendor_id), VendorPartID: uint32(a.vendor_part_id),
		MaxMRSize: uint64(a.max_mr_size), MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr),
		MaxSGE: int(a.max_sge), MaxSGERead: int(a.max_sge_rd), MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe),
		MaxMR: int(a.max_mr), MaxPD: int(a.max_pd), MaxMW: int(a.max_mw), MaxAH: int(a.max_ah),
		MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr), MaxSRQSGE: int(a.max_srq_sge),
		MaxQPRdAtom: int(a.max_qp_rd_atom), MaxQPInitRdAtom: int(a.max_qp_init_rd_atom), AckDelay: uint8(a.local_ca_ack_delay),
		MaxMcastGrp: int(a.max_mcast_grp), MaxMcastQP: int(a.max_mcast_qp_attach),
		AtomicCap: verbs.AtomicCap(a.atomic_cap), Caps: capsOf(&x),
		CompVectors: int(c.c.num_comp_vectors), PhysPorts: int(a.phys_port_cnt), ODP: odpFromC(&x), BindsAgain: c.rxe,
	}
	if vendor, firstMLX5 := uint32(0x02c9), uint32(4113); d.VendorID == vendor && d.VendorPartID >= firstMLX5 {
		d.MaxMWSize = 1 << 31 // providers/mlx5/qp.c, set_bind_wr
	}
	if err := c.dropWindows(&d); err != nil {
		return verbs.DeviceAttr{}, err
	}
	d.Opcodes = c.opcodes(&d)
	types, err := c.qpTypes()
	if err != nil {
		return verbs.DeviceAttr{}, err
	}
	d.QPTypes = types
	return d, nil
}

func capsOf(a *C.struct_vb_device_attr_ex) verbs.DeviceCaps {
	return verbs.DeviceCaps(a.device_cap_flags_ex) | verbs.DeviceCaps(a.orig_attr.device_cap_flags)
}

// opcodes returns the opcodes of RC queue pairs, which libibverbs cannot report: those of all InfiniBand
// transports, and those that the capabilities imply. A device that answers atomics in big-endian order reports no
// atomics (Linux mlx5/main.c, get_atomic_caps: atomic_req_8B_endianness_mode).
func (c *deviceContext) opcodes(d *verbs.DeviceAttr) verbs.OpcodeSet {
	ops := verbs.Opcodes(verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead)
	if d.Caps&verbs.CapMemMgt != 0 {
		ops |= verbs.Opcodes(verbs.WRLocalInv, verbs.WRSendWithInv)
	}
	if d.Caps&(verbs.CapMemWindow|verbs.CapMemWindow2A|verbs.CapMemWindow2B) != 0 {
		ops |= verbs.Opcodes(verbs.WRBindMW)
	}
	if c.c.device.transport_type != C.VB_TRANSPORT_IB {
		return ops // iWARP: no immediate data, no atomics
	}
	ops |= verbs.Opcodes(verbs.WRSendWithImm, verbs.WRRDMAWriteWithImm)
	if d.AtomicCap != verbs.AtomicNone {
		ops |= verbs.Opcodes(verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd)
	}
	if d.Caps&(verbs.CapFlushGlobal|verbs.CapFlushPersistent) != 0 {
		ops |= verbs.Opcodes(verbs.WRFlush)
	}
	if d.Caps&verbs.CapAtomicWrite != 0 {
		ops |= verbs.Opcodes(verbs.WRAtomicWrite)
	}
	return ops
}

// QueryPort reads a port.
//
// Implements: ibv_query_port.
func (c *deviceContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	var a C.struct_vb_port_attr
	if err := c.use("ibv_query_port", func() syscall.Errno {
		return syscall.Errno(C.shim_query_port(c.t, c.c, C.uint8_t(port), &a))
	}); err != nil {
		return verbs.PortAttr{}, err
	}
	return verbs.PortAttr{
		State: verbs.PortState(a.state), MaxMTU: verbs.MTU(a.max_mtu), ActiveMTU: verbs.MTU(a.active_mtu),
		GIDTblLen: int(a.gid_tbl_len), MaxMsgSize: uint32(a.max_msg_sz), PKeyTblLen: int(a.pkey_tbl_len),
		LID: uint16(a.lid), LinkLayer: verbs.LinkLayer(a.link_layer),
	}, nil
}

// QueryGID reads an entry of a port's address table.
//
// Implements: ibv_query_gid.
func (c *deviceContext) QueryGID(port uint8, index int) (verbs.GID, error) {
	const op = "ibv_query_gid"
	var g verbs.GID
	if index != int(C.int(index)) {
		return g, opError(op, c.label, syscall.EINVAL, "%w: index %d", verbs.ErrInvalid, index)
	}
	err := c.use(op, func() syscall.Errno {
		return syscall.Errno(C.shim_query_gid(c.t, c.c, C.uint8_t(port), C.int(index), (*C.union_vb_gid)(unsafe.Pointer(&g))))
	})
	return g, err
}

// QueryGIDEntry reads an entry with its type; ErrNoGID where it is empty, and ErrNotSupported
// where the library is too old (before v33).
//
// Implements: ibv_query_gid_ex.
func (c *deviceContext) QueryGIDEntry(port uint8, index int) (verbs.GIDEntry, error) {
	var e C.struct_vb_gid_entry
	if index < 0 {
		return verbs.GIDEntry{}, opError("ibv_query_gid_ex", c.label, syscall.EINVAL, "%w: entry %d", verbs.ErrInvalid, index)
	}
	err := c.use("ibv_query_gid_ex", func() syscall.Errno {
		return syscall.Errno(C.shim_query_gid_ex(c.t, c.c, C.uint32_t(port), C.uint32_t(index), &e))
	})
	// The kernel's two errors for an entry without an address.
	for _, empty := range [...]syscall.Errno{syscall.ENODATA, syscall.ENOENT} {
		if errors.Is(err, empty) {
			return verbs.GIDEntry{}, opError("ibv_query_gid_ex", c.label, empty, "%w: entry %d of port %d is empty", verbs.ErrNoGID, index, port)
		}
	}
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	return entryOf(&e), nil
}

func entryOf(e *C.struct_vb_gid_entry) verbs.GIDEntry {
	return verbs.GIDEntry{
		GID: *(*verbs.GID)(unsafe.Pointer(&e.gid)), Index: int(e.gid_index), Port: uint8(e.port_num),
		Type: verbs.GIDType(e.gid_type), NetDev: uint32(e.ndev_ifindex),
	}
}

// QueryGIDTable reads the address tables of all ports; ErrNotSupported where the library is too old (before v33).
//
// Implements: ibv_query_gid_table.
func (c *deviceContext) QueryGIDTable() (table []verbs.GIDEntry, err error) {
	err = c.use("ibv_query_gid_table", func() syscall.Errno {
		ports, _, errno := readPorts(c.t, c.c)
		if errno == 0 {
			table, errno = readGIDs(c.t, c.c, ports)
		}
		return errno
	})
	return table, err
}

// QueryPKey reads an entry of a port's partition key table, in host order.
//
// Implements: ibv_query_pkey.
func (c *deviceContext) QueryPKey(port uint8, index int) (uint16, error) {
	const op = "ibv_query_pkey"
	var k C.uint16_t // big-endian in memory
	if index != int(C.int(index)) {
		return 0, opError(op, c.label, syscall.EINVAL, "%w: index %d", verbs.ErrInvalid, index)
	}
	err := c.use(op, func() syscall.Errno {
		return syscall.Errno(C.shim_query_pkey(c.t, c.c, C.uint8_t(port), C.int(index), &k))
	})
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&k))[:]), err
}
