//go:build linux && !portable

package udp_test

import (
	"bytes"
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// Rule: a connected socket receives the datagrams that its peer sends to the port; the first socket receives those
// of other senders. Datagrams of both sockets come from the same address. No other socket can be bound to the port.
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
					must.Get(from.Send([]udp.Out{{To: at, Data: []byte("x")}}))(t)
				}
				for to, from := range map[*udp.Socket]*udp.Socket{main: other, own: peer} {
					if got := newWaiter(t, to).recv(t, 1, 10); len(got) != 1 || got[0].From != from.Local() {
						t.Errorf("%v has %+v, want one datagram from %v", to.Local(), got, from.Local())
					}
				}
				must.Get(own.Send([]udp.Out{{To: peer.Local(), Data: []byte("x")}}))(t)
				if got := newWaiter(t, peer).recv(t, 1, 10); got[0].From != at {
					t.Errorf("the peer has a datagram from %v, want %v", got[0].From, at)
				}
				refusesOthers(t, at)
			}
		})
	}
}

// Rule: a connected socket sends datagrams of any length whole, with their type of service, and allocates nothing.
// (One without a type of service leaves by another system call.)
func TestAConnectedSocketSendsWhole(t *testing.T) {
	for name, a := range loopbacks {
		t.Run(name, func(t *testing.T) {
			main, peer := listenWith(t, a, joining), listen(t, a)
			own := must.Get(main.Connect(a, peer.Local(), joining))(t)
			t.Cleanup(func() { must.Do(t, own.Close()) })
			w := newWaiter(t, peer)
			for _, n := range []int{0, 1, 40, 1000} {
				text := make([]byte, n)
				for i := range text {
					text[i] = byte(i)
				}
				for _, tos := range []uint8{0, 8} {
					out := []udp.Out{{To: peer.Local(), TOS: tos, Data: text}}
					if sent := must.Get(own.Send(out))(t); sent != 1 {
						t.Fatalf("%d bytes with type of service %d: %d datagrams were sent, want 1", n, tos, sent)
					}
					if in := w.recv(t, 1, 2000)[0]; !bytes.Equal(in.Buf[:in.N], text) || in.From != own.Local() {
						t.Errorf("%d bytes with type of service %d arrived as %d bytes from %v, want the same from %v", n, tos, in.N, in.From, own.Local())
					}
				}
			}
			out := []udp.Out{{To: peer.Local(), Data: make([]byte, 40)}}
			if got := testing.AllocsPerRun(100, func() { _, _ = own.Send(out) }); got != 0 {
				t.Errorf("Send of one datagram made %v allocations, want 0", got)
			}
		})
	}
}

// refusesOthers checks that no other socket can be bound to an address, or to an unspecified one that covers
// it, with any of the options that permit sharing.
func refusesOthers(t *testing.T, at netip.AddrPort) {
	t.Helper()
	places := []netip.Addr{at.Addr(), netip.IPv6Unspecified()}
	if at.Addr().Is4() {
		places = append(places, netip.IPv4Unspecified())
	}
	for _, options := range [][]int{{unix.SO_REUSEPORT}, {unix.SO_REUSEADDR}, {unix.SO_REUSEPORT, unix.SO_REUSEADDR}} {
		for _, a := range places {
			family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port()), Addr: a.As16()})
			if a.Is4() {
				family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: a.As4()}
			}
			fd := must.Get(unix.Socket(family, unix.SOCK_DGRAM, 0))(t)
			for _, o := range options {
				must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1))
			}
			if err := unix.Bind(fd, sa); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("another socket with the options %d at %v: %v, want %v", options, a, err, syscall.EADDRINUSE)
			}
			must.Do(t, unix.Close(fd))
		}
	}
}

// Rule: an aside sends to any destination from the address and port of the first socket, from each of its addresses if
// it has several, and takes no datagrams from it. No other socket can be bound to the port.
func TestAnAsideOnlySends(t *testing.T) {
	for name, a := range loopbacks {
		t.Run(name, func(t *testing.T) {
			for _, bound := range []netip.Addr{a, netip.IPv6Unspecified()} {
				main, peer := listen(t, bound), listen(t, a)
				at := netip.AddrPortFrom(a, main.Local().Port())
				aside := must.Get(main.Aside(udp.Options{}))(t)
				t.Cleanup(func() { must.Do(t, aside.Close()) })
				w := newWaiter(t, peer)
				for _, s := range []*udp.Socket{aside, main} {
					must.Get(s.Send([]udp.Out{{To: peer.Local(), From: a, Data: []byte("x")}}))(t)
					if got := w.recv(t, 1, 10); got[0].From != at {
						t.Errorf("the peer has a datagram from %v, want %v", got[0].From, at)
					}
					must.Get(peer.Send([]udp.Out{{To: at, Data: []byte("x")}}))(t)
					if got := newWaiter(t, main).recv(t, 1, 10); got[0].From != peer.Local() {
						t.Errorf("the answer came from %v, want %v", got[0].From, peer.Local())
					}
				}
				refusesOthers(t, at)
			}
		})
	}
}
