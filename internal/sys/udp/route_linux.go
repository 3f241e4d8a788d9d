//go:build linux && !portable

package udp

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Route returns the address from which this machine sends to another, and the length in bytes of the longest
// IP packet that the route carries, as far as the system knows it. It sends nothing and does not block.
//
// Errors: those of connect(2), for example that there is no route.
//
// Implements: connect(2), IP_MTU (ip(7)), IPV6_MTU (ipv6(7)).
func Route(to netip.AddrPort) (from netip.Addr, mtu int, err error) {
	addr := to.Addr().Unmap()
	family, level, option := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU
	if addr.Is4() {
		family, level, option = unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return from, 0, fmt.Errorf("udp: socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var sa unix.Sockaddr
	if addr.Is4() {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: addr.As4()}
	} else {
		zone, err := scope(addr)
		if err != nil {
			return from, 0, err
		}
		sa = &unix.SockaddrInet6{Port: int(to.Port()), Addr: addr.As16(), ZoneId: zone}
	}
	if err := unix.Connect(fd, sa); err != nil {
		return from, 0, fmt.Errorf("udp: a route to %v: %w", addr, err)
	}
	switch at, err := unix.Getsockname(fd); a := at.(type) {
	case *unix.SockaddrInet4:
		from = netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		from = netip.AddrFrom16(a.Addr).WithZone(addr.Zone())
	default:
		return from, 0, fmt.Errorf("udp: a route to %v: %w", addr, err)
	}
	mtu, err = unix.GetsockoptInt(fd, level, option)
	if err != nil {
		return from, 0, fmt.Errorf("udp: the MTU of the route to %v: %w", addr, err)
	}
	return from, mtu, nil
}
