//go:build linux && !portable

package roce

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: packets to strangers leave by the aside. What its send buffer has no room for is lost at once and counted, and
// delays no other packet.
func TestStrangersFillABufferOfTheirOwn(t *testing.T) {
	for _, peers := range []bool{false, true} {
		r := newRigOf(t, near, peers)
		aside := &fakeSocket{local: near, room: 2}
		r.end.aside = r.link.newEnd(aside, false)
		r.end.aside.main, r.end.aside.opened = r.end, r.fab.Now()
		path := wire.To(gidOf(far))
		if peers {
			path = r.end.Path(near.Addr(), far)
		}
		r.port.Exclusive(func() {
			for i := range uint32(8) {
				k := r.port.Get()
				k.SetHeader(&wire.Header{Opcode: wire.UDSendOnly, PSN: wire.NewPSN(i)})
				k.Stranger = i%2 == 0
				r.port.Send(path, k)
			}
		})
		r.steps()
		if s := r.link.Stats(); len(aside.sent) != 2 || len(r.sock.sent) != 4 || s.Unsent != 2 {
			t.Errorf("between processes %v: %d of 4 packets to strangers and %d of 4 others were sent, %d lost; want 2, 4, 2",
				peers, len(aside.sent), len(r.sock.sent), s.Unsent)
		}
	}
}

// Rule: each main socket has an aside. One that is full gives its place to an empty one, not before asideTime. It is
// closed with the main socket.
func TestAFullAsideGivesItsPlace(t *testing.T) {
	_, l, main := openEnd(t, "127.0.0.1")
	now := func() (e *End) {
		l.up.Exclusive(func() { e = main.aside })
		return e
	}
	full := func() {
		l.up.Exclusive(func() {
			l.now = main.aside.opened + asideTime - 1
			l.asideFull(main.aside)
			if main.renew.Load() {
				t.Error("another one was asked for before asideTime")
			}
			l.now++
			l.asideFull(main.aside)
		})
	}
	for i := range 3 {
		first := now()
		if first == nil || first.port != main.port {
			t.Fatalf("aside %d is %+v, want one at port %d", i, first, main.port)
		}
		full()
		until(t, "another aside", func() bool { return now() != first })
		if _, err := first.sock.Send([]udp.Out{{To: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), main.port)}}); err == nil {
			t.Error("the full one is open")
		}
	}
	last := now()
	main.Close()
	if _, err := last.sock.Send([]udp.Out{{To: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 9)}}); err == nil {
		t.Error("an aside is open without its main socket")
	}
}

// Rule: what the socket of an aside took from the main socket's peers before it was connected is not lost.
func TestAnAsideLosesNothingToOpen(t *testing.T) {
	r := newRigOf(t, near, true)
	b := datagram(&wire.Header{Opcode: wire.UDSendOnly}, []byte("x"))
	putICRC(b[len(b)-ICRCLen:], new(Cover).Sum(b)) // between processes it covers no addresses
	aside := &fakeSocket{local: near, arrived: []arrival{{from: far, b: b}}}
	r.link.useAside(r.end, aside)
	r.steps()
	if len(r.got) != 1 {
		t.Fatalf("the device has %d of 1 packet: %+v", len(r.got), r.link.Stats())
	}
	if at := r.got[0].Far; at == nil || at.LocalPort != near.Port() || at.PeerPort != far.Port() {
		t.Errorf("the packet came by %+v, want the path of the main socket", at)
	}
}

// Rule: a full aside that the system does not replace is not asked for again before asideTime.
func TestAnAsideThatCannotBeReplacedStays(t *testing.T) {
	r := newRigOf(t, near, true)
	first := r.link.newEnd(&fakeSocket{local: near}, false)
	first.main, r.end.aside = r.end, first
	closed := must.Get(udp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), udp.Options{}))(t)
	must.Do(t, closed.Close())
	r.end.sock = closed // the system refuses what it is asked
	r.fab.AdvanceTo(asideTime)
	r.link.mu.Lock()
	r.link.asideLocked(r.end)
	r.link.mu.Unlock()
	if now := r.fab.Now(); r.end.aside != first || now < asideTime || first.opened != now {
		t.Errorf("at %v the aside was replaced: %v, or counts as opened at %v", now, r.end.aside != first, first.opened)
	}
}
