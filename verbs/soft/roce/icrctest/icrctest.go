package icrctest

import (
	"bytes"
	"encoding/binary"
)

// The lengths of headers and of the ICRC in bytes, and the position of the BTH's byte with FECN and BECN.
const (
	linkLen    = 8
	ipv4Len    = 20
	ipv6Len    = 40
	udpLen     = 8
	icrcLen    = 4
	bthVariant = 4
)

// Sum returns the ICRC of an IP packet whose last four bytes are the place of the ICRC. It covers the packet
// without the fields that change on the way.
//
// Implements: InfiniBand Architecture Specification, annex A17 (RoCEv2), A17.3.3.
func Sum(packet []byte) uint32 {
	p := bytes.Clone(packet)
	udp := p[ipv6Len:]
	if p[0]>>4 == 4 {
		mask(p, 1, 8, 10, 11) // type of service, time to live, checksum
		udp = p[ipv4Len:]
	} else {
		p[0] |= 0x0f
		mask(p, 1, 2, 3, 7) // traffic class and flow label, hop limit
	}
	mask(udp, 6, 7, udpLen+bthVariant) // checksum; FECN and BECN
	return remainder(linkLen, p)
}

// SumUncovered returns the ICRC between two of our own processes: it covers the UDP payload, whose last four
// bytes are its place, behind as many ones as the headers of IPv4 and UDP have.
func SumUncovered(payload []byte) uint32 {
	p := bytes.Clone(payload)
	mask(p, bthVariant)
	return remainder(linkLen+ipv4Len+udpLen, p)
}

func mask(b []byte, at ...int) {
	for _, i := range at {
		b[i] = 0xff
	}
}

// remainder returns the CRC of bytes of ones and then of b without its last four bytes: by the polynomial
// 0x04c11db7, each byte from its lowest bit on.
func remainder(ones int, b []byte) uint32 {
	reg := ^uint32(0)
	for _, v := range append(bytes.Repeat([]byte{0xff}, ones), b[:len(b)-icrcLen]...) {
		for i := range 8 {
			in := uint32(v>>i)&1 ^ reg>>31
			reg <<= 1
			if in != 0 {
				reg ^= 0x04c11db7
			}
		}
	}
	// The CRC is sent complemented, its highest coefficient first, in the lowest bit of each byte.
	var out [icrcLen]byte
	for i := range 32 {
		out[i/8] |= byte(^reg>>(31-i)&1) << (i % 8)
	}
	return binary.LittleEndian.Uint32(out[:])
}
