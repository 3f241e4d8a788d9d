//go:build linux && !portable

package udp

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control is the control messages of one message: its local address, the type of service, and the length of
// joined datagrams.
//
// Implements: struct cmsghdr (cmsg(3)).
type control struct {
	words [controlLen / 8]uint64 // aligned as struct cmsghdr
	n     int                    // bytes used
}

// controlLen is the length of in6_pktinfo and two integers, with their headers, in bytes.
const controlLen = (unix.SizeofCmsghdr + unix.SizeofInet6Pktinfo + 4) + 2*(unix.SizeofCmsghdr+8)

func (c *control) bytes() *[controlLen]byte { return (*[controlLen]byte)(unsafe.Pointer(&c.words)) }

// add appends a control message and returns its data, which is zero.
func (c *control) add(level, kind int32, size int) []byte {
	b := c.bytes()[c.n:][:unix.CmsgSpace(size)]
	clear(b)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(size))
	c.n += len(b)
	return b[unix.SizeofCmsghdr:][:size]
}

// addFrom adds the address to send from.
//
// Implements: struct in_pktinfo (ip(7)), struct in6_pktinfo (ipv6(7)).
func (c *control) addFrom(from netip.Addr, is4 bool) {
	if is4 {
		a := from.Unmap().As4()
		copy(c.add(unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)[4:], a[:]) // behind the interface, which is left open
		return
	}
	a := from.As16()
	copy(c.add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo), a[:])
}

// addTOS adds the type of service of an IPv4 datagram, or the traffic class of an IPv6 one.
func (c *control) addTOS(tos uint8, is4 bool) {
	level, kind := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS)
	if is4 {
		level, kind = unix.IPPROTO_IP, unix.IP_TOS
	}
	binary.NativeEndian.PutUint32(c.add(level, kind, 4), uint32(tos))
}

// addEach adds the length of joined datagrams.
func (c *control) addEach(n int) {
	binary.NativeEndian.PutUint16(c.add(unix.SOL_UDP, unix.UDP_SEGMENT, 2), uint16(n))
}

// parse returns the local address and the length of joined datagrams in n bytes of control messages.
func (c *control) parse(n int) (to netip.Addr, each int) {
	for b := c.bytes()[:min(n, controlLen)]; len(b) >= unix.SizeofCmsghdr; {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		size := int(h.Len) - unix.SizeofCmsghdr
		if size < 0 || size > len(b)-unix.SizeofCmsghdr {
			return to, each
		}
		switch data := b[unix.SizeofCmsghdr:][:size]; {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && size >= unix.SizeofInet4Pktinfo:
			to = netip.AddrFrom4([4]byte(data[4:8]))
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && size >= unix.SizeofInet6Pktinfo:
			to = netip.AddrFrom16([16]byte(data)).Unmap()
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && size >= 4:
			each = int(binary.NativeEndian.Uint32(data))
		}
		b = b[min(unix.CmsgSpace(size), len(b)):]
	}
	return to, each
}
