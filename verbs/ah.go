package verbs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// GRHLen is the length in bytes of the network header area before the payload in the buffer of a
// UD receive. It is meaningful only with [WCWithGRH].
const GRHLen = 40

// An IPv4 header fills the end of the 40 bytes, an IPv6 header all of them (IBTA
// annex A17, RoCEv2).
const (
	grhIPv4At     = 20
	grhIPv4Sum    = grhIPv4At + 10
	grhIPv4Source = grhIPv4At + 12
	grhIPv4Dest   = grhIPv4At + 16
	grhIPv6Next   = 6
	grhIPv6Source = 8
	grhIPv6Dest   = 24
	grhNextIBA    = 0x1b // a global route header: RoCEv1 and InfiniBand (IBTA 8.3)
	ipv4Bare      = 0x45 // version 4, five words of header
)

// ECNMask is the bits of a traffic class that the network sets to report congestion (RFC 3168). A sender does not
// take them over from what it has received.
const ECNMask = 3

// InitAHFromGRH returns the address of the sender of a datagram, for a reply: the source named by
// the 40-byte header, through the port that received it. The header is untrusted input: a
// malformed one, or one whose source is not a single port, is ErrInvalid. The reply has the traffic class of
// the datagram without its [ECNMask]. The queue pair to reply to is WC.SrcQP. InitAHFromGRH does not block.
//
// Implements: ibv_init_ah_from_wc, for RoCEv2.
func InitAHFromGRH(grh []byte, port, sgidIndex uint8) (AHAttr, error) {
	a := AHAttr{SGIDIndex: sgidIndex, HopLimit: 64, Port: port}
	if len(grh) < GRHLen {
		return AHAttr{}, fmt.Errorf("%w: a GRH of %d bytes, want %d", ErrInvalid, len(grh), GRHLen)
	}
	switch {
	case isIPv4(grh):
		a.DGID = GIDFromAddr(netip.AddrFrom4([4]byte(grh[grhIPv4Source : grhIPv4Source+4])))
		a.TrafficClass = grh[grhIPv4At+1] &^ ECNMask
	case isIPv6(grh):
		a.DGID = GID(grh[grhIPv6Source : grhIPv6Source+16])
		a.TrafficClass = (grh[0]<<4 | grh[1]>>4) &^ ECNMask
		a.FlowLabel = binary.BigEndian.Uint32(grh) & 0xfffff
	default:
		return AHAttr{}, fmt.Errorf("%w: neither an IPv4 nor an IPv6 header", ErrInvalid)
	}
	// Otherwise one forged datagram would make the program reply to a whole group or to a
	// broadcast address.
	if !a.DGID.Unicast() {
		return AHAttr{}, fmt.Errorf("%w: a datagram from %v", ErrInvalid, a.DGID)
	}
	return a, nil
}

// InitAHFromLID returns the address of the sender of a datagram without a network header, for a reply:
// the normal case within a subnet of InfiniBand. slid, sl and pathBits are those of its completion
// ([WC]). A source that is not the LID of a single port is ErrInvalid. InitAHFromLID does not block.
//
// Implements: ibv_init_ah_from_wc, without IBV_WC_GRH (set_ah_attr_generic_fields of libibverbs/verbs.c).
func InitAHFromLID(slid uint16, sl, pathBits, port uint8) (AHAttr, error) {
	if slid == 0 || slid >= firstGroupLID {
		return AHAttr{}, fmt.Errorf("%w: a datagram from LID %#x", ErrInvalid, slid)
	}
	return AHAttr{DLID: slid, SL: sl, SrcPathBits: pathBits, Port: port}, nil
}

// firstGroupLID is the first LID of multicast groups; those below, except 0, are ports (IBTA 4.1.3).
const firstGroupLID = 0xc000

// GRHDest returns the destination of a datagram, from the 40-byte header before it: an address of
// this port, or of a group that a queue pair is attached to (not Unicast). v2 reports whether the
// datagram came by RoCEv2: the address table has an entry for each protocol. The header is
// untrusted input: a malformed one is ErrInvalid. GRHDest does not block.
//
// Implements: get_grh_header_version and set_ah_attr_by_ipv4 and _ipv6 of libibverbs/verbs.c.
func GRHDest(grh []byte) (dest GID, v2 bool, err error) {
	switch {
	case len(grh) < GRHLen:
	case isIPv4(grh):
		return GIDFromAddr(netip.AddrFrom4([4]byte(grh[grhIPv4Dest:GRHLen]))), true, nil
	case isIPv6(grh):
		return GID(grh[grhIPv6Dest:GRHLen]), grh[grhIPv6Next] != grhNextIBA, nil
	}
	return GID{}, false, fmt.Errorf("%w: no header of IPv4 or IPv6 in %d bytes", ErrInvalid, len(grh))
}

// isIPv4 reports whether 40 bytes or more end in an IPv4 header.
func isIPv4(grh []byte) bool {
	return grh[grhIPv4At] == ipv4Bare && (checksum(grh[grhIPv4At:GRHLen]) == 0 || unsent(grh))
}

// isIPv6 reports whether grh is an IPv6 header. The caller checks isIPv4 first.
func isIPv6(grh []byte) bool { return grh[0]>>4 == 6 }

// unsent reports whether the header belongs to a datagram that never became a packet: Soft-RoCE
// passes a datagram between queue pairs of one device before the network stack fills in the
// checksum (rxe_loopback in drivers/infiniband/sw/rxe/rxe_net.c). The first 20 bytes are then
// zeros (execute in rxe_resp.c).
func unsent(grh []byte) bool {
	return grh[grhIPv4Sum] == 0 && grh[grhIPv4Sum+1] == 0 && bytes.Equal(grh[:grhIPv4At], make([]byte, grhIPv4At))
}

// checksum is the Internet checksum. It is 0 over a header that includes its checksum.
//
// Implements: RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
