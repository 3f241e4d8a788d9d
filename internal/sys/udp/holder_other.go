//go:build !linux || portable

package udp

import "net/netip"

// Holder describes the socket that has a local address; it is not known here.
func Holder(netip.AddrPort) string { return "" }
