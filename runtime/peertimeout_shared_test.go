package runtime

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a message that a shared receive takes is a sign of the peer it came from: it is
// not asked whether it is there.
func TestASharedReceiveIsASignOfThePeer(t *testing.T) {
	notOnDevice(t, "virtual time")
	const every, times, size = 500 * time.Millisecond, 20, 64
	w := newSimWorld(1, 0)
	t.Cleanup(w.finish)
	n, m := w.nodes[0], w.nodes[1]
	s, err := m.rt.NewSharedRecv(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.rt.ListenOptions(netip.AddrPortFrom(m.addr, 0).String(), Options{Raw: true, Shared: s, KeepAlive: every})
	if err != nil {
		t.Fatal(err)
	}
	seat, err := l.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	dialing, err := n.rt.DialAsync(w.ended, l.Addr().String(), Options{Raw: true, KeepAlive: -1})
	if err != nil {
		t.Fatal(err)
	}
	w.pass(100 * time.Millisecond)
	a, err, ok := dialing.Poll()
	if err != nil || !ok {
		t.Fatalf("dialing: %v (settled %t)", err, ok)
	}
	b, err, ok := seat.Poll()
	if err != nil || !ok {
		t.Fatalf("accepting: %v (settled %t)", err, ok)
	}
	r := m.region(size, verbs.AccessLocalWrite)
	local, err := r.Slice(0, size)
	if err != nil {
		t.Fatal(err)
	}
	before := m.rt.Stats().KeepAlives
	for range 4 * times {
		var got futures.Future[Arrival]
		if got, err = s.PostRecv(local); err != nil {
			t.Fatal(err)
		}
		sent, err := a.SendBytes(w.ended, []byte("I am here"))
		if err != nil {
			t.Fatal(err)
		}
		w.pass(every / 4)
		if arrived, err, ok := got.Poll(); err != nil || !ok || arrived.Conn != b {
			t.Fatalf("a shared receive: %v (settled %t)", err, ok)
		}
		if _, err, ok := sent.Poll(); err != nil || !ok {
			t.Fatalf("sending: %v (settled %t)", err, ok)
		}
	}
	if got := m.rt.Stats().KeepAlives - before; got != 0 {
		t.Errorf("a peer that sends four messages in each interval was asked %d times in %d of them", got, times)
	}
	w.pass(times * every)
	if got := m.rt.Stats().KeepAlives - before; got < times-2 {
		t.Errorf("a silent peer was asked %d times in %d intervals", got, times)
	}
	a.Abort()
	b.Abort()
	l.end()
	w.pass(3 * flushBound)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
