//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// sockaddr converts an address for C; the zero value has no family.
func sockaddr(a netip.AddrPort) (s C.struct_sockaddr_storage) {
	ip := a.Addr()
	switch {
	case ip.Is4() || ip.Is4In6():
		in := (*syscall.RawSockaddrInet4)(unsafe.Pointer(&s))
		in.Family, in.Addr = syscall.AF_INET, ip.Unmap().As4()
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&in.Port))[:], a.Port())
	case ip.Is6():
		in := (*syscall.RawSockaddrInet6)(unsafe.Pointer(&s))
		in.Family, in.Addr, in.Scope_id = syscall.AF_INET6, ip.As16(), zoneIndex(ip.Zone())
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&in.Port))[:], a.Port())
	}
	return s
}

// addrPort converts an address from C; zero for no family or an unknown one.
func addrPort(s *C.struct_sockaddr_storage) netip.AddrPort {
	switch s.ss_family {
	case syscall.AF_INET:
		in := (*syscall.RawSockaddrInet4)(unsafe.Pointer(s))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&in.Port))[:]))
	case syscall.AF_INET6:
		in := (*syscall.RawSockaddrInet6)(unsafe.Pointer(s))
		ip := netip.AddrFrom16(in.Addr).Unmap()
		if in.Scope_id != 0 && ip.IsLinkLocalUnicast() {
			ip = ip.WithZone(zoneName(in.Scope_id))
		}
		return netip.AddrPortFrom(ip, binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&in.Port))[:]))
	}
	return netip.AddrPort{}
}

// sockaddrIB converts an address of InfiniBand for C; the zero value has no family.
func sockaddrIB(a verbs.IBAddr) (s C.struct_sockaddr_storage) {
	if a == (verbs.IBAddr{}) {
		return s
	}
	in := (*C.struct_vb_sockaddr_ib)(unsafe.Pointer(&s))
	b := (*[unsafe.Sizeof(*in)]byte)(unsafe.Pointer(in))
	in.sib_family = C.VB_AF_IB
	binary.BigEndian.PutUint16(b[unsafe.Offsetof(in.sib_pkey):], a.PKey)
	binary.BigEndian.PutUint32(b[unsafe.Offsetof(in.sib_flowinfo):], a.FlowInfo)
	copy(b[unsafe.Offsetof(in.sib_addr):], a.GID[:])
	binary.BigEndian.PutUint64(b[unsafe.Offsetof(in.sib_sid):], a.SID)
	binary.BigEndian.PutUint64(b[unsafe.Offsetof(in.sib_sid_mask):], a.SIDMask)
	in.sib_scope_id = C.uint64_t(a.ScopeID)
	return s
}

// addrIB converts an address of InfiniBand from C; zero for another family.
func addrIB(s *C.struct_sockaddr_storage) (a verbs.IBAddr) {
	if s.ss_family != C.VB_AF_IB {
		return a
	}
	in := (*C.struct_vb_sockaddr_ib)(unsafe.Pointer(s))
	b := (*[unsafe.Sizeof(*in)]byte)(unsafe.Pointer(in))
	copy(a.GID[:], b[unsafe.Offsetof(in.sib_addr):])
	a.PKey = binary.BigEndian.Uint16(b[unsafe.Offsetof(in.sib_pkey):])
	a.FlowInfo = binary.BigEndian.Uint32(b[unsafe.Offsetof(in.sib_flowinfo):])
	a.SID = binary.BigEndian.Uint64(b[unsafe.Offsetof(in.sib_sid):])
	a.SIDMask = binary.BigEndian.Uint64(b[unsafe.Offsetof(in.sib_sid_mask):])
	a.ScopeID = uint64(in.sib_scope_id)
	return a
}

// refresh copies the addresses of both ends from C.
func (id *cmID) refresh() {
	src, dst := C.shim_src(id.c), C.shim_dst(id.c)
	e := ends{local: addrPort(src), peer: addrPort(dst), localIB: addrIB(src), peerIB: addrIB(dst)}
	if v := id.c.verbs; v != nil {
		e.device, e.port = C.GoString(&v.device.name[0]), uint8(id.c.port_num)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.seen = e
}

func (id *cmID) ends() ends {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.seen
}

// Device names the device the identifier is bound to.
func (id *cmID) Device() string { return id.ends().device }

// Port is the port of that device.
//
// Implements: struct rdma_cm_id (port_num).
func (id *cmID) Port() uint8 { return id.ends().port }

// LocalAddr returns the address of this end.
//
// Implements: rdma_get_local_addr.
func (id *cmID) LocalAddr() netip.AddrPort { return id.ends().local }

// PeerAddr returns the address of the other end.
//
// Implements: rdma_get_peer_addr.
func (id *cmID) PeerAddr() netip.AddrPort { return id.ends().peer }

// IBAddrs returns the addresses of InfiniBand.
//
// Implements: rdma_get_local_addr, rdma_get_peer_addr with AF_IB.
func (id *cmID) IBAddrs() (local, peer verbs.IBAddr) {
	e := id.ends()
	return e.localIB, e.peerIB
}
