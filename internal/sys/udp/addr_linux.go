//go:build linux && !portable

package udp

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// putAddr writes a socket address, and returns what struct msghdr has of it.
func (s *Socket) putAddr(to *unix.RawSockaddrInet6, a netip.AddrPort) (*byte, uint32) {
	if s.is4 {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(to))
		*sa = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: netOrder(a.Port()), Addr: a.Addr().As4()}
		return (*byte)(unsafe.Pointer(sa)), uint32(unsafe.Sizeof(*sa))
	}
	*to = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: netOrder(a.Port()), Addr: a.Addr().As16()}
	if a.Addr().IsLinkLocalUnicast() {
		to.Scope_id = s.zone
	}
	return (*byte)(unsafe.Pointer(to)), uint32(unsafe.Sizeof(*to))
}

// addr reads a socket address.
func (s *Socket) addr(from *unix.RawSockaddrInet6) netip.AddrPort {
	if s.is4 {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(from))
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), netOrder(sa.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(from.Addr).Unmap(), netOrder(from.Port))
}

// netOrder converts between host order and network order.
func netOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
