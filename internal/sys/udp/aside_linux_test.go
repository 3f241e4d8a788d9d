//go:build linux && !portable

package udp_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// tooBig is an ICMP report that a datagram from at to at needs fragmentation.
func tooBig(at netip.AddrPort) []byte {
	const ipLen, code = 20, 4
	be := binary.BigEndian
	quoted := make([]byte, ipLen+16)
	quoted[0], quoted[8], quoted[9] = 0x45, 64, unix.IPPROTO_UDP
	be.PutUint16(quoted[2:], uint16(len(quoted)))
	a := at.Addr().As4()
	copy(quoted[12:], a[:])
	copy(quoted[16:], a[:])
	be.PutUint16(quoted[ipLen:], at.Port())
	be.PutUint16(quoted[ipLen+2:], at.Port())
	be.PutUint16(quoted[ipLen+4:], 16)
	m := append([]byte{3, code, 0, 0, 0, 0, 0, 0}, quoted...)
	be.PutUint16(m[6:], 1400)
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(be.Uint16(m[i:]))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	be.PutUint16(m[2:], ^uint16(sum))
	return m
}

// Rule: a forged report that a datagram of an aside was too long loses nothing: an aside sends nothing to the address that
// such a report quotes.
func TestForgedReportsLoseNothingOfAnAside(t *testing.T) {
	if !netns.Enter(t) { // the system remembers the size for a path
		return
	}
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP))(t)
	defer func() { must.Do(t, unix.Close(fd)) }()
	lo := netip.MustParseAddr("127.0.0.1")
	for _, bound := range []netip.Addr{lo, netip.IPv6Unspecified()} {
		main, peer := listen(t, bound), listen(t, lo)
		aside := must.Get(main.Aside(udp.Options{}))(t)
		lost := 0
		for range 100 {
			must.Do(t, unix.Sendto(fd, tooBig(netip.AddrPortFrom(lo, main.Local().Port())), 0, &unix.SockaddrInet4{Addr: lo.As4()}))
			if n, _ := aside.Send([]udp.Out{{To: peer.Local(), From: lo, Data: []byte("x")}}); n != 1 {
				lost++
			}
		}
		if lost != 0 {
			t.Errorf("bound to %v: %d of 100 datagrams were lost", bound, lost)
		}
		must.Do(t, aside.Close())
	}
}
