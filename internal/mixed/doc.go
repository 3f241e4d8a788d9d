// Package mixed lays a cable between Linux Soft-RoCE and a software RNIC of this process, in the
// virtual machine of the tests (package rxevm). For tests only.
//
//	first name space                     name space "mixed"
//	rxemixed on mixed0, 10.78.0.1 ────── mixed1, 10.78.0.2: the software RNIC's socket
//
// Soft-RoCE has UDP port 4791 of every address of its name space, so that the software RNIC's socket
// is in another one.
package mixed

import "net/netip"

// Device is the name of Soft-RoCE's device.
const Device = "rxemixed"

// The addresses of the two ends.
var (
	DeviceAddr = netip.MustParseAddr("10.78.0.1")
	SoftAddr   = netip.MustParseAddr("10.78.0.2")
)
