package verbs

import "fmt"

// AllServiceBits is the SIDMask of an address whose service ID counts as a whole.
const AllServiceBits = ^uint64(0)

// The two parts of the service ID of a port: the port space and the port.
//
// Implements: RDMA_IB_IP_PS_MASK, RDMA_IB_IP_PORT_MASK.
const (
	PortSpaceBits uint64 = 0xffff_ffff_ffff_0000
	PortBits      uint64 = 0x0000_0000_0000_ffff
)

// Limits of private data as MaxPrivateConnect and MaxPrivateUDP, for addresses of InfiniBand: their requests have no
// header of the RDMA CM.
const (
	MaxPrivateConnectIB = 92
	MaxPrivateUDPIB     = 216
)

// IBAddr is an address of InfiniBand: a port of a device, or a multicast group, and a service. The zero value is
// no address.
//
// Implements: struct sockaddr_ib.
type IBAddr struct {
	PKey     uint16 // the partition
	FlowInfo uint32
	GID      GID    // as a local address zero: that of any device
	SID      uint64 // the service ID
	SIDMask  uint64 // the bits of SID that Bind must not choose
	ScopeID  uint64
}

// NewIBAddr returns the address of a port at a GID, in the default partition. As a local address port 0 has Bind
// choose one.
//
// Implements: ucma_convert_in6 and ucma_set_sid of librdmacm/addrinfo.c.
func NewIBAddr(gid GID, ps PortSpace, port uint16) IBAddr {
	const defaultPKey = 0xffff
	a := IBAddr{PKey: defaultPKey, GID: gid, SID: uint64(ps)<<16 | uint64(port), SIDMask: PortSpaceBits}
	if port != 0 {
		a.SIDMask |= PortBits
	}
	return a
}

// Port returns the port of the service ID.
//
// Implements: ucma_get_port of librdmacm/cma.c.
func (a IBAddr) Port() uint16 { return uint16(a.SID) }

// String returns the GID and the service ID.
func (a IBAddr) String() string { return fmt.Sprintf("%v service 0x%016x", a.GID, a.SID) }
