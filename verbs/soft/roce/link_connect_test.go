//go:build linux && !portable

package roce

import (
	"net/netip"
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
	return d, l, must.Get(l.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), 0)))(t)
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
		own.hot.Store(true)
		l.Connect(&other)
		until(t, "a socket for one more path", func() bool { return l.end(&other) != main })
	}
	if n := len(l.own()); n != maxConnected || l.end(&path) != own {
		t.Errorf("%d paths have sockets, want %d; the busy path has %+v", n, maxConnected, l.end(&path))
	}
	for _, e := range l.own() {
		e.hot.Store(true)
	}
	more := main.Path(local, netip.AddrPortFrom(local, 20_000))
	l.Connect(&more)
	until(t, "the answer", func() bool {
		l.asking.Lock()
		defer l.asking.Unlock()
		return len(l.asked) == 0
	})
	if l.end(&more) != main {
		t.Error("a path took the place of a busy one")
	}
	main.Close()
	if left := *l.ends.Load(); len(left) != 0 {
		t.Errorf("%d sockets are left without the main one", len(left))
	}
}

// Rule: a socket that brings nothing but junk is not hot, and is read once in pollTime.
func TestJunkIsReadNowAndThen(t *testing.T) {
	r := newRigOf(t, true)
	for range 10 {
		r.sock.arrived = append(r.sock.arrived, arrival{far, []byte("no packet"), 0})
	}
	r.link.rx.next = 4
	r.looks()
	if n := len(r.sock.arrived); n != 6 || !r.end.flooded.Load() || r.end.hot.Load() {
		t.Errorf("%d of 10 are left, flooded %v, hot %v", n, r.end.flooded.Load(), r.end.hot.Load())
	}
	if !r.link.armIdle(false) || r.end.armed.Load() {
		t.Error("the socket was armed at once")
	}
	b := datagram(&wire.Header{Opcode: wire.RCSendOnly}, nil)
	end := len(b) - ICRCLen
	putICRC(b[end:], new(Cover).Sum(b[:end], nil, nil, len(b))) // as between processes
	r.sock.arrived = []arrival{{far, b, 0}}
	r.looks()
	if !r.end.hot.Load() || len(r.got) != 1 {
		t.Errorf("after a packet: hot %v, %d packets", r.end.hot.Load(), len(r.got))
	}
}
