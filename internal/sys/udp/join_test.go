package udp_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// joining is options for sockets that join datagrams.
var joining = udp.Options{ReceiveBuffer: 4 << 20, Join: true}

// texts returns the payloads in a received datagram.
func texts(in udp.In) (all [][]byte) {
	each := in.Each
	if each == 0 {
		return [][]byte{in.Buf[:in.N]}
	}
	for b := in.Buf[:in.N]; len(b) > 0; b = b[min(each, len(b)):] {
		all = append(all, b[:min(each, len(b))])
	}
	return all
}

// sendAll sends datagrams in as many calls as it takes.
func sendAll(t *rapid.T, s *udp.Socket, outs []udp.Out) {
	for len(outs) > 0 {
		n, err := s.Send(outs[:min(len(outs), udp.MaxBatch)])
		if err != nil {
			t.Fatal(err)
		}
		outs = outs[n:]
	}
}

// Rule: whether sockets join datagrams or not, each receiver gets the same datagrams in the order sent.
func TestJoiningKeepsDatagrams(t *testing.T) {
	for name, a := range loopbacks {
		t.Run(name, func(t *testing.T) {
			from := []*udp.Socket{listen(t, a), listenWith(t, a, joining)}
			to := []*udp.Socket{listen(t, a), listenWith(t, a, joining)}
			waiters := []waiter{newWaiter(t, to[0]), newWaiter(t, to[1])}
			rapid.Check(t, func(r *rapid.T) {
				var outs []udp.Out
				var want [2][][]byte
				room := 100_000 // bytes: the smallest usual receive buffer holds so many, with their overhead
				for i := range rapid.IntRange(1, 2*udp.MaxBatch).Draw(r, "datagrams") {
					var where, n int
					if i > 0 && rapid.IntRange(0, 9).Draw(r, "like before") > 0 {
						for where = range to {
							if to[where].Local() == outs[i-1].To {
								break
							}
						}
						n = len(want[where][len(want[where])-1])
					} else {
						where = rapid.IntRange(0, 1).Draw(r, "to")
						n = rapid.SampledFrom([]int{0, 1, 40, 1000, 4156}).Draw(r, "length")
					}
					if room -= n; room < 0 {
						break
					}
					text := bytes.Repeat([]byte{byte(i)}, n)
					outs = append(outs, udp.Out{To: to[where].Local(), Data: text})
					want[where] = append(want[where], text)
				}
				sender := from[rapid.IntRange(0, 1).Draw(r, "sender")]
				sendAll(r, sender, outs)
				for i, w := range waiters {
					var got [][]byte
					for len(got) < len(want[i]) {
						for _, in := range w.recv(t, 1, udp.MaxJoined) {
							if in.From != sender.Local() || in.Cut {
								r.Fatalf("a datagram from %v, cut %v; want from %v", in.From, in.Cut, sender.Local())
							}
							got = append(got, texts(in)...)
						}
					}
					if len(got) != len(want[i]) {
						r.Fatalf("%d datagrams, want %d", len(got), len(want[i]))
					}
					for k := range got {
						if !bytes.Equal(got[k], want[i][k]) {
							r.Fatalf("datagram %d of receiver %d has %d bytes of %x, want %d of %x", k, i, len(got[k]), got[k][:min(1, len(got[k]))], len(want[i][k]), want[i][k][:min(1, len(want[i][k]))])
						}
					}
				}
			})
		})
	}
}

// Rule: neighbors of one length to one peer pass as one on Linux, and so they are received.
func TestNeighborsAreJoined(t *testing.T) {
	if sys.Portable {
		t.Skip("the portable socket joins no datagrams")
	}
	a := loopbacks["IPv4"]
	from, to := listenWith(t, a, joining), listenWith(t, a, joining)
	w := newWaiter(t, to)
	var outs []udp.Out
	for range udp.MaxBatch / 2 {
		outs = append(outs, udp.Out{To: to.Local(), Data: make([]byte, 40)})
	}
	if n := must.Get(from.Send(outs))(t); n != len(outs) {
		t.Fatalf("%d datagrams were sent, want %d", n, len(outs))
	}
	if got := w.recv(t, 1, udp.MaxJoined); len(got) != 1 || got[0].Each != 40 || got[0].N != 40*len(outs) {
		t.Errorf("%d arrived, the first of %d bytes, joined from %d each; want 1, %d, 40", len(got), got[0].N, got[0].Each, 40*len(outs))
	}
}

// Rule: a socket at all addresses of both families joins datagrams, too, with the address that they are sent
// from, and reports the one that they came to.
func TestJoinedAtAllAddresses(t *testing.T) {
	if sys.Portable {
		t.Skip("the portable socket joins no datagrams")
	}
	from, to := listenWith(t, netip.IPv6Unspecified(), joining), listenWith(t, netip.IPv6Unspecified(), joining)
	w := newWaiter(t, to)
	for _, a := range []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.IPv6Loopback()} {
		other := a
		if a.Is4() {
			other = netip.MustParseAddr("127.0.0.3")
		}
		var outs []udp.Out
		for range 10 {
			outs = append(outs, udp.Out{To: netip.AddrPortFrom(a, to.Local().Port()), From: other, Data: make([]byte, 100)})
		}
		if n := must.Get(from.Send(outs))(t); n != len(outs) {
			t.Fatalf("%d datagrams were sent, want %d", n, len(outs))
		}
		in := w.recv(t, 1, udp.MaxJoined)[0]
		if in.N != 1000 || in.Each != 100 || in.To != a || in.From != netip.AddrPortFrom(other, from.Local().Port()) {
			t.Errorf("%d bytes joined from %d each arrived from %v at %v; want 1000, 100, %v, %v", in.N, in.Each, in.From, in.To, other, a)
		}
	}
}

// Rule: a socket whose system cannot join datagrams sends them one by one.
func TestSystemCannotJoin(t *testing.T) {
	if sys.Portable {
		t.Skip("the portable socket joins no datagrams")
	}
	a := loopbacks["IPv4"]
	from, to := listenWith(t, a, joining), listenWith(t, a, joining)
	must.Do(t, withoutChecksums(from))
	w := newWaiter(t, to)
	for round := range 2 {
		var outs []udp.Out
		for i := range 10 {
			outs = append(outs, udp.Out{To: to.Local(), Data: fmt.Appendf(nil, "%d", i)})
		}
		if n := must.Get(from.Send(outs))(t); n != len(outs) {
			t.Fatalf("round %d: %d datagrams were sent, want %d", round, n, len(outs))
		}
		for i, in := range w.recv(t, len(outs), udp.MaxJoined) {
			if got := string(in.Buf[:in.N]); got != fmt.Sprint(i) || in.Each != 0 {
				t.Errorf("round %d: datagram %d is %q, joined from %d each", round, i, got, in.Each)
			}
		}
	}
}
