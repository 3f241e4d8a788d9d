//go:build linux && !portable

package udp_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// Rule: a connected socket gets what its peer sends to the port, and no other datagram; the first socket gets the
// others. What it sends comes from the same address. Nobody else can bind to the port.
func TestAConnectedSocketIsThePeersAlone(t *testing.T) {
	for name, a := range loopbacks {
		t.Run(name, func(t *testing.T) {
			for _, bound := range []netip.Addr{a, netip.IPv6Unspecified()} {
				main, peer, other := listen(t, bound), listen(t, a), listen(t, a)
				at := netip.AddrPortFrom(a, main.Local().Port())
				own := must.Get(main.Connect(a, peer.Local(), udp.Options{ReceiveBuffer: 1 << 20}))(t)
				t.Cleanup(func() { must.Do(t, own.Close()) })
				if own.Local() != at {
					t.Fatalf("it is at %v, want %v", own.Local(), at)
				}
				another := must.Get(main.Connect(a, other.Local(), udp.Options{ReceiveBuffer: 1 << 20}))(t)
				must.Do(t, another.Close())
				for _, from := range []*udp.Socket{other, peer} {
					must.Get(from.Send([]udp.Out{{To: at, Parts: [][]byte{[]byte("x")}}}))(t)
				}
				for to, from := range map[*udp.Socket]*udp.Socket{main: other, own: peer} {
					if got := newWaiter(t, to).recv(t, 1, 10); len(got) != 1 || got[0].From != from.Local() {
						t.Errorf("%v has %+v, want one datagram from %v", to.Local(), got, from.Local())
					}
				}
				must.Get(own.Send([]udp.Out{{To: peer.Local(), Parts: [][]byte{[]byte("x")}}}))(t)
				if got := newWaiter(t, peer).recv(t, 1, 10); got[0].From != at {
					t.Errorf("the peer has a datagram from %v, want %v", got[0].From, at)
				}
				stealing(t, at)
			}
		})
	}
}

// stealing checks that no other socket can be bound to an address or its unspecified one, whatever it permits.
func stealing(t *testing.T, at netip.AddrPort) {
	t.Helper()
	for option := range map[int]bool{unix.SO_REUSEPORT: true, unix.SO_REUSEADDR: true} {
		for _, sa := range []unix.Sockaddr{addressOf(at), addressOf(netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port()))} {
			family := unix.AF_INET6
			if _, is4 := sa.(*unix.SockaddrInet4); is4 {
				family = unix.AF_INET
			}
			fd := must.Get(unix.Socket(family, unix.SOCK_DGRAM, 0))(t)
			must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1))
			if err := unix.Bind(fd, sa); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("another socket with option %d at %v: %v, want EADDRINUSE", option, sa, err)
			}
			must.Do(t, unix.Close(fd))
		}
	}
}

func addressOf(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
