//go:build !linux || portable

package udp

import (
	"net"
	"net/netip"
)

// Route returns the address from which this machine sends to another. mtu is 0: not known.
func Route(to netip.AddrPort) (from netip.Addr, mtu int, err error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)) // sends nothing
	if err != nil {
		return from, 0, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), 0, nil
}
