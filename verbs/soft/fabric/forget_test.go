package fabric

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// TestRoutesToNobodyDoNotPileUp checks that an endpoint that keeps routes to ever new addresses,
// each for a while, has at most twice as many as it keeps, and that a kept route leads to the port
// attached there later.
func TestRoutesToNobodyDoNotPileUp(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b, c := &toy{}, &toy{}, &toy{}
	attach(t, f, a)
	attachAt(t, f, 2, c)
	var last *Route
	a.inTurn(func() {
		reached := a.port.route(wire.To(gid(2)))
		defer func() {
			if a.port.routes[wire.To(gid(2))] != reached {
				t.Error("the route to a port that is there was forgotten")
			}
		}()
		last = a.port.Route(wire.To(gid(1)))
		if a.port.Route(wire.To(gid(1))) != last {
			t.Error("two routes to one address")
		}
		a.port.Unroute(last) // one of two
		for i := range 1000 {
			a.port.Unroute(a.port.Route(wire.To(gid(1000 + i))))
		}
		a.port.Unroute(nil)
	})
	if n, m := len(f.routes), len(a.port.routes); n > 2*minSweep || n != m {
		t.Errorf("%d routes in the fabric, %d at the port; want at most %d", n, m, 2*minSweep)
	}
	attachAt(t, f, 1, b)
	a.inTurn(func() {
		k := a.port.Get()
		k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PSN: 2})
		a.port.SendTo(last, k)
	})
	settle(f, 0)
	if len(b.psns) != 1 {
		t.Error("the route that was kept does not lead to the port attached later")
	}
}

// TestASweepSparesScripts checks that a link with a fault script keeps it in a sweep.
func TestASweepSparesScripts(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a)
	f.SetLink(gid(0), gid(1), Link{Down: true})
	a.inTurn(func() {
		a.port.Unroute(a.port.Route(wire.To(gid(1))))
		for i := range 1000 {
			a.port.Unroute(a.port.Route(wire.To(gid(1000 + i))))
		}
	})
	attachAt(t, f, 1, b)
	sendMany(a, 1, 1, wire.RCSendOnly)
	settle(f, 0)
	a.port.Detach()
	again := &toy{}
	attachAt(t, f, 0, again)
	sendMany(again, 1, 1, wire.RCSendOnly)
	settle(f, 0)
	if len(b.psns) != 0 {
		t.Error("a packet arrived over a link that is down")
	}
}

// TestPortsThatComeAndGoLeaveNothing attaches ports at ever new addresses that exchange packets
// with one that stays, and join a group.
func TestPortsThatComeAndGoLeaveNothing(t *testing.T) {
	f := New(Config{Virtual: true})
	a := &toy{}
	attach(t, f, a)
	for i := range 500 {
		b := &toy{}
		attachAt(t, f, 1+i, b)
		a.inTurn(func() { a.send(gid(1+i), wire.RCSendOnly, 1, nil, nil) })
		b.inTurn(func() {
			b.send(gid(0), wire.RCSendOnly, 1, nil, nil)
			b.port.Join(gid(5000 + i))
		})
		g := f.Group(gid(5000 + i))
		settle(f, 0)
		if i%2 == 0 {
			f.Ungroup(g)
			b.port.Detach()
		} else {
			b.port.Detach()
			f.Ungroup(g)
		}
	}
	if n := len(f.routes); n > 2*minSweep {
		t.Errorf("%d routes are left, at most %d", n, 2*minSweep)
	}
	if n := len(f.groups); n != 0 {
		t.Errorf("%d groups are left", n)
	}
	a.port.Detach()
	if n := len(f.routes); n != 0 {
		t.Errorf("%d routes are left when nobody is there", n)
	}
}

// TestAGroupThatIsKeptIsTheOneJoined checks that a sender with an empty group reaches later
// members, even if others joined and left before.
func TestAGroupThatIsKeptIsTheOneJoined(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	g := f.Group(gid(9))
	f.Ungroup(f.Group(gid(9)))
	b.inTurn(func() { b.port.Join(gid(9)); b.port.Leave(gid(9)); b.port.Join(gid(9)) })
	if n := a.sendGroup(g, u64(1), nil); n != 1 {
		t.Errorf("sent to %d members, want 1", n)
	}
	f.Ungroup(g)
	if n := a.sendGroup(f.Group(gid(9)), u64(2), nil); n != 1 {
		t.Errorf("sent to %d members after every sender let the group go, want 1", n)
	}
	settle(f, 1)
}

// TestADetachedPortSendsNothing checks that packets sent in an exclusive section of a detached port
// are dropped, and do not affect the link of the port that has the address now.
func TestADetachedPortSendsNothing(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b, again := &toy{}, &toy{}, &toy{}
	attach(t, f, a, b)
	f.SetLink(gid(0), gid(1), Link{Delay: 1})
	var route *Route
	a.inTurn(func() { route = a.port.Route(wire.To(gid(1))) })
	b.inTurn(func() { b.port.Join(gid(9)) })
	g := f.Group(gid(9))
	a.port.Detach()
	attachAt(t, f, 0, again)
	var held counter
	a.inTurn(func() {
		a.send(gid(1), wire.RCSendOnly, 1, nil, &held)
		k := a.port.Get()
		k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PSN: 2})
		k.Holder = &held
		a.port.SendTo(route, k)
	})
	if n := a.sendGroup(g, nil, &held); n != 0 {
		t.Errorf("sent to %d members of a group", n)
	}
	f.AdvanceTo(1)
	settle(f, 0)
	if len(b.psns) != 0 || route.ordinal != 0 || held.done.Load() != 3 {
		t.Errorf("%d packets arrived, %d were on the link, the holder was told of %d; want 0, 0, 3", len(b.psns), route.ordinal, held.done.Load())
	}
}
