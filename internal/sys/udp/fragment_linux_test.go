//go:build linux && !portable

package udp_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// setMTU sets the MTU of the loopback device of this namespace.
func setMTU(t *testing.T, mtu uint32) {
	t.Helper()
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer func() { must.Do(t, unix.Close(fd)) }()
	r := must.Get(unix.NewIfreq("lo"))(t)
	r.SetUint32(mtu)
	must.Do(t, unix.IoctlIfreq(fd, unix.SIOCSIFMTU, r))
}

// Rule: when the path becomes narrower, a socket with Options.Fragment goes on: datagrams that are too long arrive
// whole, in fragments, and shorter ones are still joined. Without the option a datagram that is too long is refused.
func TestANarrowerPathGetsFragments(t *testing.T) {
	if !netns.Enter(t) {
		return
	}
	const wide, narrow = 1 << 16, 1280 // the latter is the smallest of IPv6
	const n = 8                        // datagrams of a batch
	opt := udp.Options{ReceiveBuffer: 1 << 20, Join: true, Fragment: true}
	whole := opt
	whole.Fragment = false
	for name, c := range map[string]struct{ local, to string }{
		"IPv4": {"127.0.0.1", "127.0.0.1"}, "IPv6": {"::1", "::1"}, "IPv4 of both": {"::", "127.0.0.1"}, "IPv6 of both": {"::", "::1"},
	} {
		for _, connected := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s connected %v", name, connected), func(t *testing.T) {
				setMTU(t, wide)
				to := listenWith(t, netip.MustParseAddr(c.to), opt)
				w := newWaiter(t, to)
				sender := func(opt udp.Options) *udp.Socket {
					s := listenWith(t, netip.MustParseAddr(c.local), opt)
					if !connected {
						return s
					}
					own := must.Get(s.Connect(netip.MustParseAddr(c.to), to.Local(), opt))(t)
					t.Cleanup(func() { must.Do(t, own.Close()) })
					return own
				}
				s, refuses := sender(opt), sender(whole)
				// exchange sends a batch, and returns how many messages of the system arrived.
				exchange := func(when string, data []byte) (messages int) {
					t.Helper()
					for outs := batchOf(n, to.Local(), data); len(outs) > 0; {
						k, err := s.Send(outs)
						if err != nil {
							t.Fatalf("%s: %d of %d datagrams of %d bytes are left: %v", when, len(outs), n, len(data), err)
						}
						outs = outs[k:]
					}
					for got := 0; got < n; {
						for _, in := range w.recv(t, 1, udp.MaxJoined) {
							messages++
							for _, text := range texts(in) {
								got++
								if !bytes.Equal(text, data) {
									t.Errorf("%s: %d bytes arrived, want %d", when, len(text), len(data))
								}
							}
						}
					}
					return messages
				}
				long, short := bytes.Repeat([]byte("long"), 500), bytes.Repeat([]byte("s"), 100)
				if m := exchange("a wide path", long); m != 1 {
					t.Errorf("%d long datagrams arrived in %d messages on a wide path, want 1", n, m)
				}
				setMTU(t, narrow)
				for range 2 {
					if m := exchange("a narrow path", long); m != n {
						t.Errorf("%d long datagrams arrived in %d messages on a narrow path, want %d", n, m, n)
					}
				}
				if m := exchange("a narrow path", short); m != 1 {
					t.Errorf("%d short datagrams arrived in %d messages, want 1", n, m)
				}
				if k, err := refuses.Send(batchOf(1, to.Local(), long)); k != 0 || !errors.Is(err, udp.ErrTooLong) {
					t.Errorf("a socket without fragments sent %d datagrams: %v, want 0: %v", k, err, udp.ErrTooLong)
				}
			})
		}
	}
}

// batchOf returns n datagrams of the same bytes.
func batchOf(n int, to netip.AddrPort, data []byte) (outs []udp.Out) {
	for range n {
		outs = append(outs, udp.Out{To: to, From: to.Addr(), Data: data})
	}
	return outs
}
