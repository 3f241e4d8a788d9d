package fabric

import (
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// network is the endpoint of an uplink: it records the destinations of what it takes.
type network struct {
	toy
	to []verbs.GID
}

// attachUplink gives e an uplink.
func attachUplink(t *testing.T, e *toy) *network {
	t.Helper()
	n := &network{}
	n.onPacket = func(k *Packet) { n.to = append(n.to, k.Dst) }
	n.port = e.port.AttachUplink("uplink", false, n)
	t.Cleanup(n.port.Detach)
	return n
}

// Rule: packets to addresses of the fabric stay on it; those to any other go to the sender's uplink,
// also after the port at the address has gone, and until there is one.
func TestUplinkHasWhatNoPortHas(t *testing.T) {
	for _, virtual := range []bool{true, false} {
		f := New(Config{Virtual: virtual})
		a, b, c := new(toy), new(toy), new(toy)
		attach(t, f, a, b)
		up := attachUplink(t, a)
		send := func(e *toy, to int, psn wire.PSN) {
			e.inTurn(func() { e.send(gid(to), wire.RCAcknowledge, psn, nil, nil) })
			if virtual {
				settle(f, f.Now())
			}
		}
		var onUplink []verbs.GID
		check := func(what string, at *toy, want []wire.PSN) {
			t.Helper()
			at.inTurn(func() {
				if !slices.Equal(at.psns, want) {
					t.Errorf("virtual time %v: %s: PSNs %v arrived, want %v", virtual, what, at.psns, want)
				}
			})
			up.inTurn(func() {
				if !slices.Equal(up.to, onUplink) {
					t.Errorf("virtual time %v: %s: the uplink has packets to %v, want %v", virtual, what, up.to, onUplink)
				}
			})
		}
		send(a, 1, 1)
		check("to a port", b, []wire.PSN{1})
		send(a, 2, 2)
		onUplink = append(onUplink, gid(2))
		check("to nobody", b, []wire.PSN{1})
		attachAt(t, f, 2, c)
		send(a, 2, 3)
		check("to a new port", c, []wire.PSN{3})
		c.port.Detach()
		send(a, 2, 4)
		onUplink = append(onUplink, gid(2))
		check("to a port that has gone", b, []wire.PSN{1})
		send(b, 2, 5)
		check("from a port without an uplink", b, []wire.PSN{1})
		up.port.Detach()
		before := a.port.Stats().Unknown
		send(a, 2, 6)
		if n := a.port.Stats().Unknown - before; n != 1 {
			t.Errorf("virtual time %v: %d packets to nobody were counted without the uplink, want 1", virtual, n)
		}
	}
}

// Rule: a packet from the network keeps its source, and the owner answers to it over the uplink.
func TestPacketsFromTheNetworkKeepTheirSource(t *testing.T) {
	f := New(Config{Virtual: true})
	a := &toy{answers: true}
	attach(t, f, a)
	up := attachUplink(t, a)
	up.inTurn(func() {
		k := up.port.Get()
		k.Src = gid(7)
		k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PSN: 9})
		up.port.SendTo(up.port.Route(wire.To(a.port.GID())), k)
	})
	settle(f, f.Now())
	if !slices.Equal(a.psns, []wire.PSN{9}) || !slices.Equal(up.to, []verbs.GID{gid(7)}) {
		t.Errorf("PSNs %v arrived and answers to %v left, want 9 and %v", a.psns, up.to, gid(7))
	}
}

// Rule: peers that come over the network, as many as their sender likes to name, leave a bounded
// number of routes.
func TestStrangersLeaveFewRoutes(t *testing.T) {
	f := New(Config{Virtual: true})
	a := new(toy)
	attach(t, f, a)
	attachUplink(t, a)
	kept := gid(1)
	a.inTurn(func() {
		r := a.port.Route(wire.To(kept))
		for i := range 10 * minSweep {
			a.send(gid(2+i), wire.RCAcknowledge, 0, nil, nil)
		}
		if a.port.Route(wire.To(kept)) != r {
			t.Error("a route that is kept was swept")
		}
		if n := len(a.port.routes); n > minSweep+1 {
			t.Errorf("the port has %d routes, want at most %d", n, minSweep+1)
		}
	})
}

// Rule: an uplink's port ends with its fabric: nothing is left of it.
func TestUplinkLeavesNothing(t *testing.T) {
	f := New(Config{Virtual: true})
	a := new(toy)
	attach(t, f, a)
	up := attachUplink(t, a)
	up.inTurn(func() { up.port.Route(wire.To(a.port.GID())) })
	a.inTurn(func() { a.send(gid(5), wire.RCAcknowledge, 0, nil, nil) })
	settle(f, f.Now())
	up.port.Detach()
	up.port.Detach()
	a.port.Detach()
	if len(f.routes)+len(f.attached)+len(f.links)+len(*f.ports.Load()) != 0 {
		t.Errorf("left are %d routes, %d ports, %d links", len(f.routes), len(f.attached), len(f.links))
	}
}
