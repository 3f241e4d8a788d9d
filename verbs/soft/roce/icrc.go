package roce

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// ICRCLen is the length of the invariant CRC, in bytes.
const ICRCLen = 4

// The lengths of the headers below the transport headers, in bytes.
const (
	udpLen  = 8
	ipv4Len = 20
	ipv6Len = 40
	lrhLen  = 8 // of the InfiniBand header; the CRC begins with as many ones
)

// The positions of fields, in bytes from the start of their header.
const (
	ipv4TotalLen = 2
	ipv4ID       = 4
	ipv4Fragment = 6
	ipv4Protocol = 9
	ipv4Src      = 12
	ipv4Dst      = 16

	ipv6PayloadLen = 4
	ipv6Next       = 6
	ipv6Src        = 8
	ipv6Dst        = 24

	udpDst    = 2
	udpLength = 4

	bthVariant = 4 // holds FECN and BECN, which routers change
)

const (
	protocolUDP   = 17
	ipv4First     = 0x45   // version 4, a header of five words
	ipv4DontSplit = 0x4000 // DF
	ipv6First     = 0x6f   // version 6, the traffic class masked
)

// Cover names the two ends of a datagram, whose IP and UDP headers its ICRC covers. The zero value
// covers none of them, so that such datagrams pass NAT.
//
// Implements: InfiniBand Architecture Specification, annex A17 (RoCEv2), A17.3.3: the ICRC. The
// masked fields are those of Linux drivers/infiniband/sw/rxe/rxe_icrc.c, rxe_icrc_hdr.
type Cover struct {
	Src, Dst netip.AddrPort // both IPv4, or both IPv6. Invalid: not covered
	// AnyID makes Check accept any identification in the IPv4 header, which the receiver of a UDP
	// socket does not see. Of the 32 bits of the ICRC, 16 are left then.
	AnyID bool

	buf [coverLen + wire.BTHLen]byte // of begin: the CRC's functions would have it allocated each time
}

// coverLen is the length of the longest headers below the transport headers, in bytes.
const coverLen = lrhLen + ipv6Len + udpLen

// ones is these headers with every field masked.
var ones = [coverLen]byte(bytes.Repeat([]byte{0xff}, coverLen))

// uncovered is the CRC of the headers below the transport headers if none of their fields is covered, with
// those of IPv4.
var uncovered = crc32.ChecksumIEEE(ones[:lrhLen+ipv4Len+udpLen])

// begin returns the CRC of everything that is covered before the end of hdr, which begins with the
// BTH. n is the length of the UDP payload in bytes, with the ICRC. It writes into hdr and restores it: one
// call for contiguous bytes takes half the time of three.
func (c *Cover) begin(hdr []byte, n int) uint32 {
	if !c.Src.IsValid() {
		was := hdr[bthVariant]
		hdr[bthVariant] = 0xff
		crc := crc32.Update(uncovered, crc32.IEEETable, hdr)
		hdr[bthVariant] = was
		return crc
	}
	buf := &c.buf
	copy(buf[:], ones[:])
	at := lrhLen
	be, ip := binary.BigEndian, buf[at:]
	switch src, dst := c.Src.Addr(), c.Dst.Addr(); {
	case src.Is4():
		ip[0] = ipv4First
		be.PutUint16(ip[ipv4TotalLen:], uint16(ipv4Len+udpLen+n))
		be.PutUint16(ip[ipv4ID:], 0)
		be.PutUint16(ip[ipv4Fragment:], ipv4DontSplit)
		ip[ipv4Protocol] = protocolUDP
		s, d := src.As4(), dst.As4()
		copy(ip[ipv4Src:], s[:])
		copy(ip[ipv4Dst:], d[:])
		at += ipv4Len
	default:
		ip[0] = ipv6First
		be.PutUint16(ip[ipv6PayloadLen:], uint16(udpLen+n))
		ip[ipv6Next] = protocolUDP
		s, d := src.As16(), dst.As16()
		copy(ip[ipv6Src:], s[:])
		copy(ip[ipv6Dst:], d[:])
		at += ipv6Len
	}
	udp := buf[at:]
	be.PutUint16(udp, c.Src.Port())
	be.PutUint16(udp[udpDst:], c.Dst.Port())
	be.PutUint16(udp[udpLength:], uint16(udpLen+n))
	at += udpLen
	end := at + copy(buf[at:], hdr)
	buf[at+bthVariant] = 0xff
	return crc32.ChecksumIEEE(buf[:end])
}

// Sum returns the ICRC of a datagram, which begins with a BTH and ends with the place of the ICRC. On IPv4 the
// identification is 0 and DF is set. It writes into b and restores it, and allocates nothing.
func (c *Cover) Sum(b []byte) uint32 {
	end := len(b) - ICRCLen
	covered := b[:end] // in one piece
	if c.Src.IsValid() {
		covered = b[:wire.BTHLen]
	}
	return crc32.Update(c.begin(covered, len(b)), crc32.IEEETable, b[len(covered):end])
}

// Check reports whether the ICRC of a datagram, which holds at least a BTH and an ICRC, is right. It writes into
// b and restores it, and allocates nothing.
func (c *Cover) Check(b []byte) bool {
	end := len(b) - ICRCLen
	diff := c.Sum(b) ^ binary.LittleEndian.Uint32(b[end:])
	if diff == 0 {
		return true
	}
	if !c.AnyID || !c.Src.Addr().Is4() {
		return false
	}
	_, ok := idOf(diff, ipv4Len-ipv4Fragment+udpLen+end)
	return ok
}
