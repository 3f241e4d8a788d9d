package udp_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// loopbacks are addresses to test with; a system may lack IPv6.
var loopbacks = map[string]netip.Addr{"IPv4": netip.MustParseAddr("127.0.0.1"), "IPv6": netip.IPv6Loopback()}

// listen opens a socket at a free port of a.
func listen(t *testing.T, a netip.Addr) *udp.Socket {
	t.Helper()
	return listenWith(t, a, udp.Options{ReceiveBuffer: 1 << 20})
}

func listenWith(t testing.TB, a netip.Addr, opt udp.Options) *udp.Socket {
	t.Helper()
	s, err := udp.Listen(netip.AddrPortFrom(a, 0), opt)
	if a.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
		t.Skipf("this system has no IPv6: %v", err)
	}
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, s.Close()) })
	return s
}

// waiter waits for datagrams of one socket.
type waiter struct {
	s *udp.Socket
	p *sys.Poller
}

func newWaiter(t *testing.T, s *udp.Socket) waiter {
	t.Helper()
	p := must.Get(sys.NewPoller())(t)
	must.Do(t, p.Attach(s, 0))
	t.Cleanup(func() { must.Do(t, p.Close()) })
	return waiter{s, p}
}

// recv receives n datagrams of at most size bytes.
func (w waiter) recv(t *testing.T, n, size int) (got []udp.In) {
	t.Helper()
	var keys [1]uint32
	for len(got) < n {
		ms := make([]udp.In, udp.MaxBatch)
		for i := range ms {
			ms[i].Buf = make([]byte, size)
		}
		k := must.Get(w.s.Recv(ms))(t)
		got = append(got, ms[:k]...)
		if k == 0 {
			must.Get(w.p.Wait(time.Time{}, keys[:]))(t)
		}
	}
	return got
}

// Rule: a batch arrives in order, each datagram whole, with its sender's address.
func TestBatchArrives(t *testing.T) {
	for name, a := range loopbacks {
		t.Run(name, func(t *testing.T) {
			from, to := listen(t, a), listen(t, a)
			w := newWaiter(t, to)
			var outs []udp.Out
			for i := range udp.MaxBatch {
				text := fmt.Appendf(nil, "datagram %d", i)
				outs = append(outs, udp.Out{To: to.Local(), Data: text})
			}
			if n := must.Get(from.Send(outs))(t); n != len(outs) {
				t.Fatalf("%d datagrams were sent, want %d", n, len(outs))
			}
			for i, m := range w.recv(t, len(outs), 100) {
				want := fmt.Sprintf("datagram %d", i)
				if got := string(m.Buf[:m.N]); got != want || m.From != from.Local() || m.Cut {
					t.Errorf("datagram %d is %q from %v, cut %v; want %q from %v", i, got, m.From, m.Cut, want, from.Local())
				}
			}
		})
	}
}

// Rule: a datagram that does not fit its buffer is reported as cut; an empty one arrives.
func TestShortBufferCuts(t *testing.T) {
	s := listen(t, loopbacks["IPv4"])
	w := newWaiter(t, s)
	must.Get(s.Send([]udp.Out{{To: s.Local(), Data: bytes.Repeat([]byte("x"), 9)}, {To: s.Local()}}))(t)
	got := w.recv(t, 2, 8)
	if got[0].N != 8 || !got[0].Cut || got[1].N != 0 || got[1].Cut {
		t.Errorf("received %d bytes, cut %v, then %d, cut %v; want 8, true, 0, false", got[0].N, got[0].Cut, got[1].N, got[1].Cut)
	}
}

// Rule: the error of Send belongs to the first datagram that was not sent; those before it were.
func TestSendReportsTheFirstRefused(t *testing.T) {
	s := listen(t, loopbacks["IPv4"])
	w := newWaiter(t, s)
	long := make([]byte, 1<<16)
	outs := []udp.Out{{To: s.Local(), Data: []byte{1}}, {To: s.Local(), Data: long}}
	n, err := s.Send(outs)
	if n == 1 && err == nil { // sendmmsg reports it with the next call
		n, err = s.Send(outs[1:])
		n++
	}
	if n != 1 || err == nil || !sys.Portable && !errors.Is(err, udp.ErrTooLong) {
		t.Errorf("Send returns %d, %v, want 1, %v", n, err, udp.ErrTooLong)
	}
	w.recv(t, 1, 8)
}

// Rule: one socket has an address at a time.
func TestAddressInUse(t *testing.T) {
	s := listen(t, loopbacks["IPv4"])
	other, err := udp.Listen(s.Local(), udp.Options{})
	if err == nil {
		_ = other.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second socket: %v, want %v", err, syscall.EADDRINUSE)
	}
}

// Rule: sending and receiving allocate nothing.
func TestBatchesAllocateNothing(t *testing.T) {
	if sys.Portable {
		t.Skip("the portable build copies")
	}
	s := listen(t, loopbacks["IPv4"])
	w := newWaiter(t, s)
	out := []udp.Out{{To: s.Local(), Data: make([]byte, 72)}}
	in := []udp.In{{Buf: make([]byte, 100)}}
	var keys [1]uint32
	got := testing.AllocsPerRun(100, func() {
		if n, err := s.Send(out); n != 1 || err != nil {
			t.Fatalf("Send returns %d, %v", n, err)
		}
		for {
			if n, err := s.Recv(in); n == 1 {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if _, err := w.p.Wait(time.Time{}, keys[:]); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got != 0 {
		t.Errorf("%v allocations for a datagram, want 0", got)
	}
}

// Rule: the receive buffer is at least as large as what it holds, and counts what it drops.
func TestFullReceiveBuffer(t *testing.T) {
	if sys.Portable {
		t.Skip("the portable socket reads at once; its queue is filled only if the reader gets no processor")
	}
	from, to := listen(t, loopbacks["IPv4"]), listen(t, loopbacks["IPv4"])
	before := to.Buffer()
	if before.Size < 1<<12 || before.Dropped != 0 {
		t.Fatalf("a new socket has %+v", before)
	}
	payload := make([]byte, 4096)
	sent := 0
	for to.Buffer().Dropped < 10 {
		sent += must.Get(from.Send([]udp.Out{{To: to.Local(), Data: payload}}))(t)
		if sent*len(payload) > 2*before.Size+1<<20 {
			t.Fatalf("%d datagrams of %d bytes filled no buffer of %d", sent, len(payload), before.Size)
		}
	}
	ms := make([]udp.In, 1)
	ms[0].Buf = payload
	got := 0
	for must.Get(to.Recv(ms))(t) == 1 {
		got++
	}
	if after := to.Buffer(); uint64(sent-got) != after.Dropped {
		t.Errorf("%d datagrams were sent, %d received, and %d dropped", sent, got, after.Dropped)
	}
}
