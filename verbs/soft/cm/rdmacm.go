package cm

import (
	"encoding/binary"
	"net/netip"

	"github.com/verbena-rdma/verbena/verbs"
)

// ConnHeaderSize is the size in bytes of the RDMA CM header in front of the private data of a REQ,
// which names the two IP addresses (kernel drivers/infiniband/core/cma.c struct cma_hdr).
const ConnHeaderSize = 36

// The rest of the REQ's private data is the size that package verbs promises.
var _ [PrivateREQ - ConnHeaderSize - verbs.MaxPrivateConnect]struct{} = [0]struct{}{}

// ConnHeader is the RDMA CM header of a REQ.
type ConnHeader struct {
	SrcPort  uint16
	Src, Dst netip.Addr
}

const cmaVersion = 0

// Put writes the header into the first ConnHeaderSize bytes of b. Both addresses must have the same
// family; an invalid or mixed pair is written as IPv6.
func (h ConnHeader) Put(b *[PrivateREQ]byte) {
	src, dst := h.Src.Unmap(), h.Dst.Unmap()
	clear(b[:ConnHeaderSize])
	b[0] = cmaVersion
	binary.BigEndian.PutUint16(b[2:], h.SrcPort)
	if src.Is4() && dst.Is4() {
		b[1] = 4 << 4
		s, d := src.As4(), dst.As4()
		copy(b[16:20], s[:])
		copy(b[32:36], d[:])
		return
	}
	b[1] = 6 << 4
	if src.IsValid() {
		s := src.As16()
		copy(b[4:20], s[:])
	}
	if dst.IsValid() {
		d := dst.As16()
		copy(b[20:36], d[:])
	}
}

// ipVersion returns the IP version in an RDMA CM header, which the peer chose freely.
func ipVersion(private []byte) uint8 { return private[1] >> 4 }

// dstGID returns the address in an RDMA CM header that the request asks for; the zero GID without one.
func dstGID(private []byte) (g verbs.GID) {
	switch ipVersion(private) {
	case 4:
		g = verbs.GIDFromAddr(netip.AddrFrom4([4]byte(private[32:36])))
	case 6:
		copy(g[:], private[20:36])
	}
	return g
}

// ParseConnHeader reads the header in front of a REQ's private data. The error is a *FieldError
// that wraps ErrMalformed.
func ParseConnHeader(b *[PrivateREQ]byte) (ConnHeader, error) {
	h := ConnHeader{SrcPort: binary.BigEndian.Uint16(b[2:])}
	if b[0] != cmaVersion {
		return h, malformed("REQ", "RDMA CM version", uint64(b[0]), "0")
	}
	switch v := ipVersion(b[:]); v {
	case 4:
		h.Src, h.Dst = netip.AddrFrom4([4]byte(b[16:20])), netip.AddrFrom4([4]byte(b[32:36]))
	case 6:
		h.Src, h.Dst = netip.AddrFrom16([16]byte(b[4:20])).Unmap(), netip.AddrFrom16([16]byte(b[20:36])).Unmap()
	default:
		return h, malformed("REQ", "IP version", uint64(v), "4 or 6")
	}
	return h, nil
}

// serviceShift places the port space above the port in a service ID.
const serviceShift = 16

// ServiceID returns the service ID of a port in a port space.
//
// Implements: rdma_get_service_id (kernel cma.c).
func ServiceID(ps verbs.PortSpace, port uint16) uint64 {
	return uint64(ps)<<serviceShift | uint64(port)
}

// mtuJumboCode is the code of verbs.MTUJumbo in the 4-bit path MTU field. The specification
// reserves 6 to 15; only software RNICs send them: this one on a link that declares it, and 6 to 8, for
// larger packets, between processes.
const mtuJumboCode = 15

// MTUCode returns the 4-bit code of a path MTU.
func MTUCode(m verbs.MTU) uint8 {
	if m == verbs.MTUJumbo {
		return mtuJumboCode
	}
	return uint8(m) & 0xf
}

// MTUFromCode returns the path MTU of a code; ok is false for a reserved one.
func MTUFromCode(c uint8) (m verbs.MTU, ok bool) {
	if c == mtuJumboCode {
		return verbs.MTUJumbo, true
	}
	m = verbs.MTU(c)
	return m, m >= verbs.MTU256 && m <= verbs.MTU32768
}
