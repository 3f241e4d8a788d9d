//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"
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
		in.Family, in.Addr = syscall.AF_INET6, ip.As16()
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
		return netip.AddrPortFrom(netip.AddrFrom16(in.Addr).Unmap(), binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&in.Port))[:]))
	}
	return netip.AddrPort{}
}

// refresh copies the addresses of both ends from C.
func (id *cmID) refresh() {
	e := ends{local: addrPort(C.shim_src(id.c)), peer: addrPort(C.shim_dst(id.c))}
	if v := id.c.verbs; v != nil {
		e.device = C.GoString(&v.device.name[0])
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

// LocalAddr returns the address of this end.
//
// Implements: rdma_get_local_addr.
func (id *cmID) LocalAddr() netip.AddrPort { return id.ends().local }

// PeerAddr returns the address of the other end.
//
// Implements: rdma_get_peer_addr.
func (id *cmID) PeerAddr() netip.AddrPort { return id.ends().peer }
