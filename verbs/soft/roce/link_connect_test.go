//go:build linux && !portable

package roce

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// openEnd opens a link between processes with a socket.
func openEnd(t *testing.T, addr string) (*device, *Link, *End) {
	t.Helper()
	d, gid := new(device), gidOf(netip.AddrPortFrom(netip.MustParseAddr(addr), 0))
	d.port = must.Get(fabric.New(fabric.Config{}).Attach(gid, addr, d))(t)
	l := OpenPeers(d.port, addr, func() {})
	t.Cleanup(func() {
		must.Do(t, l.Close())
		d.port.Detach()
	})
	return d, l, must.Get(l.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), 0), false))(t)
}

// own returns the sockets of single paths.
func (l *Link) own() (all []*End) {
	for _, e := range *l.ends.Load() {
		if e.main != nil {
			all = append(all, e)
		}
	}
	return all
}

// Rule: a path that was asked for gets one socket, which sends and receives its packets, and which has the same
// holder as the main one. There are at most maxConnected: a new path takes the place of one without traffic. They
// are closed with the main socket.
func TestAPathHasItsOwnSocket(t *testing.T) {
	_, l, main := openEnd(t, "127.0.0.1")
	_, _, peer := openEnd(t, "127.0.0.2")
	local := netip.MustParseAddr("127.0.0.1")
	path := main.Path(local, netip.AddrPortFrom(local, peer.Port()))
	l.Connect(&path)
	l.Connect(&path)
	until(t, "a socket for the path", func() bool { return l.end(&path) != main })
	own := l.end(&path)
	if own.main != main || own.Path(netip.Addr{}, netip.AddrPortFrom(local, peer.Port())) != path {
		t.Fatalf("the path %v has the socket %+v", path, own)
	}
	if e := l.Hold(&path); e != main {
		t.Errorf("who holds the path holds %+v, want the main socket", e)
	}
	main.Close() // the reference of Hold
	for port := range uint16(maxConnected) {
		other := main.Path(local, netip.AddrPortFrom(local, 10_000+port))
		for i, e := range l.own() {
			e.hot.Store(i != 1) // quiet: the second one, from the third on
		}
		l.Connect(&other)
		until(t, "a socket for one more path", func() bool { return l.end(&other) != main })
	}
	second := main.Path(local, netip.AddrPortFrom(local, 10_000))
	if n := len(l.own()); n != maxConnected || l.end(&path) != own || l.end(&second) != main {
		t.Errorf("%d paths have sockets, want %d; the busy path has %+v, the quiet one %+v", n, maxConnected, l.end(&path), l.end(&second))
	}
	for _, e := range l.own() {
		e.hot.Store(true)
	}
	l.Connect(&second)
	until(t, "the answer", func() bool {
		l.asking.Lock()
		defer l.asking.Unlock()
		return len(l.asked) == 0
	})
	l.mu.Lock()   // until it was tried
	l.mu.Unlock() //nolint:staticcheck // nothing else
	if l.end(&second) != main {
		t.Error("a path took the place of a busy one")
	}
	main.Close()
	if left := *l.ends.Load(); len(left) != 0 {
		t.Errorf("%d sockets are left without the main one", len(left))
	}
}

// Rule: junk makes a socket not hot. One that has brought junkPerRest of it, and no packet, rests for pollTime;
// one with less does not.
func TestJunkIsReadNowAndThen(t *testing.T) {
	r := newRigOf(t, near, true)
	junk := func(n int) {
		r.sock.arrived = slices.Repeat([]arrival{{far, []byte("no packet"), 0}}, n)
		r.looks()
	}
	junk(junkPerRest - 1)
	if n := len(r.sock.arrived); n != 0 || r.end.flooded.Load() || r.end.hot.Load() {
		t.Errorf("%d are left, flooded %v, hot %v", n, r.end.flooded.Load(), r.end.hot.Load())
	}
	junk(2 * junkPerRest)
	if n := len(r.sock.arrived); n == 0 || !r.end.flooded.Load() || r.end.hot.Load() {
		t.Errorf("%d are left, flooded %v, hot %v", n, r.end.flooded.Load(), r.end.hot.Load())
	}
	if !r.link.armIdle(false) || r.end.armed.Load() {
		t.Error("the socket was armed at once")
	}
	b := datagram(&wire.Header{Opcode: wire.RCSendOnly}, nil)
	end := len(b) - ICRCLen
	putICRC(b[end:], new(Cover).Sum(b)) // as between processes
	r.sock.arrived = []arrival{{far, b, 0}}
	r.looks()
	if !r.end.hot.Load() || len(r.got) != 1 {
		t.Errorf("after a packet: hot %v, %d packets", r.end.hot.Load(), len(r.got))
	}
}

// Rule: each packet leaves by the socket of its path, or by the main one.
func TestPacketsLeaveByTheirPath(t *testing.T) {
	r := newRigOf(t, near, true)
	socks := []*fakeSocket{r.sock}
	for range 2 {
		s := &fakeSocket{local: near, room: -1}
		e := r.link.newEnd(s, false)
		e.main, e.path = r.end, r.end.Path(near.Addr(), netip.AddrPortFrom(far.Addr(), uint16(len(socks))))
		r.link.addLocked(e)
		socks = append(socks, s)
	}
	for _, to := range []uint16{1, 2, 1, 1, 3, 2} { // 3: the main one's
		r.port.Exclusive(func() {
			k := r.port.Get()
			k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PSN: wire.NewPSN(uint32(to))})
			r.port.Send(r.end.Path(near.Addr(), netip.AddrPortFrom(far.Addr(), to)), k)
		})
	}
	r.steps()
	for i, want := range []int{1, 3, 2} {
		if n := len(socks[i].sent); n != want {
			t.Errorf("socket %d has sent %d packets, want %d", i, n, want)
		}
	}
}
