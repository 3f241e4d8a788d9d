package soft

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"weak"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestAddressHandles: what is refused, what is counted, and that the domain
// lives as long as they.
func TestAddressHandles(t *testing.T) {
	w := newDatagrams(t, options{})
	ok := verbs.AHAttr{DGID: w.b.gid, Port: 1, SL: 15, FlowLabel: 1<<20 - 1, HopLimit: 255, TrafficClass: 255}
	for _, c := range []struct {
		name string
		set  func(*verbs.AHAttr)
	}{
		{"port", func(a *verbs.AHAttr) { a.Port = 2 }},
		{"no port", func(a *verbs.AHAttr) { a.Port = 0 }},
		{"source address", func(a *verbs.AHAttr) { a.SGIDIndex = 1 }},
		{"no destination", func(a *verbs.AHAttr) { a.DGID = verbs.GID{} }},
		{"any IPv4", func(a *verbs.AHAttr) { a.DGID = verbs.GIDFromAddr(netip.IPv4Unspecified()) }},
		{"service level", func(a *verbs.AHAttr) { a.SL = 16 }},
		{"flow label", func(a *verbs.AHAttr) { a.FlowLabel = 1 << 20 }},
	} {
		a := ok
		c.set(&a)
		if _, err := w.a.pd.CreateAH(&a); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", c.name, err)
		}
	}
	h, err := w.a.pd.CreateAH(&ok)
	must(t, err)
	if n := w.a.ctx.Objects().AH; n != 1 {
		t.Fatalf("%d address handles alive, want 1", n)
	}
	pd, err := w.a.ctx.AllocPD()
	must(t, err)
	other, err := pd.CreateAH(&ok)
	must(t, err)
	if err := pd.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing a domain with an address handle: %v, want ErrBusy", err)
	}
	stale := h.Handle()
	for _, o := range []verbs.Object{h, h, other, pd} {
		must(t, o.Close())
	}
	again, err := w.a.pd.CreateAH(&ok)
	must(t, err)
	defer again.Close()
	if again.Handle() == stale || again.Handle() == 0 {
		t.Fatalf("handle 0x%x: a handle names one object only, and 0 none", again.Handle())
	}
}

// TestClosedHandlesLetTheLinkForget: what address handles and queue pairs lead to
// is forgotten by the fabric some time after they are closed, or the next such
// handles would fill its tables.
func TestClosedHandlesLetTheLinkForget(t *testing.T) {
	w := newWorld(t, options{kind: verbs.QPTUC})
	handle := func(a netip.Addr) *addressHandle {
		h, err := w.a.pd.CreateAH(&verbs.AHAttr{Port: 1, DGID: verbs.GIDFromAddr(a)})
		must(t, err)
		return h.(*addressHandle)
	}
	nobody := netip.MustParseAddr("10.9.9.9")
	a, g := handle(nobody), handle(netip.MustParseAddr("239.9.9.9"))
	route, group := weak.Make(a.route), weak.Make(g.group)
	q := w.a.qp
	must(t, q.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	must(t, q.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1}, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	must(t, q.Modify(&verbs.QPAttr{
		State: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPN: 5, AH: verbs.AHAttr{DGID: verbs.GIDFromAddr(nobody), Port: 1},
	}, verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN))
	others := func() {
		for i := range 500 {
			must(t, handle(netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)})).Close())
		}
		runtime.GC()
	}
	must(t, a.Close())
	must(t, g.Close())
	others()
	if group.Value() != nil {
		t.Error("the group of a closed address handle is remembered")
	}
	if route.Value() == nil {
		t.Error("the route of a connected queue pair was forgotten with a handle's")
	}
	must(t, q.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	others()
	if route.Value() != nil {
		t.Error("the route that nobody uses any more is remembered")
	}
}
