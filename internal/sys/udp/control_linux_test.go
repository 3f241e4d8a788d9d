//go:build linux && !portable

package udp

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: a datagram leaves with its type of service, over either family and from sockets of either, joined or
// alone, or from a connected socket. Neighbors with different types of service are not joined.
func TestTypeOfService(t *testing.T) {
	for _, c := range []struct{ local, to string }{
		{"127.0.0.1:0", "127.0.0.1"}, {"[::]:0", "127.0.0.1"}, {"[::]:0", "::1"}, {"[::1]:0", "::1"},
	} {
		t.Run(c.local+" to "+c.to, func(t *testing.T) {
			rx := must.Get(net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.to), 0))))(t)
			defer func() { must.Do(t, rx.Close()) }()
			raw := must.Get(rx.SyscallConn())(t)
			level, option := unix.IPPROTO_IP, unix.IP_RECVTOS
			if rx.LocalAddr().(*net.UDPAddr).IP.To4() == nil {
				level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS
			}
			var err error
			must.Do(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }))
			must.Do(t, err)
			s := must.Get(Listen(netip.MustParseAddrPort(c.local), Options{Join: true}))(t)
			defer func() { must.Do(t, s.Close()) }()
			to := netip.AddrPortFrom(netip.MustParseAddr(c.to), uint16(rx.LocalAddr().(*net.UDPAddr).Port))
			want := []uint8{46 << 2, 46 << 2, 0, 10 << 2}
			var outs []Out
			for _, tos := range want {
				outs = append(outs, Out{To: to, From: to.Addr(), TOS: tos, Data: []byte{tos}})
			}
			if n, err := s.Send(outs); n != len(outs) || err != nil {
				t.Fatalf("%d datagrams were sent: %v", n, err)
			}
			own := must.Get(s.Connect(to.Addr(), to, Options{Join: true}))(t)
			defer func() { must.Do(t, own.Close()) }()
			for i := range outs {
				if n, err := own.Send(outs[i:][:1]); n != 1 || err != nil {
					t.Fatalf("a connected socket sent %d datagrams, want 1: %v", n, err)
				}
			}
			b, oob := make([]byte, 8), make([]byte, 128)
			for i, tos := range slices.Concat(want, want) {
				_, n, _, _, err := rx.ReadMsgUDP(b, oob)
				must.Do(t, err)
				all := must.Get(unix.ParseSocketControlMessage(oob[:n]))(t)
				if len(all) != 1 || len(all[0].Data) == 0 || all[0].Data[0] != tos || b[0] != tos {
					t.Errorf("datagram %d has byte %d and control messages %v, want %d", i, b[0], all, tos)
				}
			}
		})
	}
}
