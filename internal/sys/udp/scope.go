package udp

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// scope returns the number of the interface that a link-local address names, 0 for any other.
func scope(a netip.Addr) (uint32, error) {
	zone := a.Zone()
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("udp: the interface of %v: %w", a, err)
	}
	return uint32(i.Index), nil
}
