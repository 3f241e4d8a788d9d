package soft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
)

func inUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// Rule (RDMA_OPTION_ID_REUSEADDR; kernel cma.c, cma_check_port and rdma_listen): identifiers that all reuse addresses
// share a port, on one device or on all. An identifier listens only when it has the port alone. No identifier joins a
// listener's port.
func TestPortsAreShared(t *testing.T) {
	r := newRig(t, false)
	var made []verbs.CMID
	bind := func(reuse bool, addr string) (verbs.CMID, error) {
		id := r.a.id()
		made = append(made, id)
		if reuse {
			must.Do(t, id.SetReuseAddr(true))
		}
		return id, id.Bind(netip.MustParseAddrPort(addr))
	}
	one := must.Get(bind(true, "10.0.0.1:99"))(t)
	if _, err := bind(false, "10.0.0.1:99"); !inUse(err) {
		t.Errorf("one that does not reuse: %v, want EADDRINUSE", err)
	}
	two, err := bind(true, "10.0.0.1:99")
	if err != nil {
		t.Errorf("a second one that reuses: %v", err)
	}
	all, err := bind(true, "0.0.0.0:99")
	if err != nil {
		t.Errorf("one at all addresses that reuses: %v", err)
	}
	if err := one.Listen(0); !inUse(err) {
		t.Errorf("listening on a shared port: %v, want EADDRINUSE", err)
	}
	r.closeAll(two, all)
	must.Do(t, one.Listen(0))
	if _, err := bind(true, "10.0.0.1:99"); !inUse(err) {
		t.Errorf("reusing the port of a listener: %v, want EADDRINUSE", err)
	}
	if err := one.SetReuseAddr(true); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("SetReuseAddr of a listener: %v, want ErrInvalid", err)
	}
	free, err := bind(true, "10.0.0.1:0")
	if err != nil || free.LocalAddr().Port() == 99 {
		t.Errorf("port 0 became %v, %v", free.LocalAddr(), err)
	}
	// A request comes to the one that listens.
	ida := r.b.route(one.LocalAddr())
	must.Do(t, ida.Connect(&verbs.ConnParam{QPNum: 0x4242}))
	ev := r.a.event(verbs.CMConnectRequest)
	if ev.ListenID != one {
		t.Errorf("the request came to %v", ev.ListenID)
	}
	r.closeAll(ev.ID, ida)
	r.closeAll(made...)
}

// Rule (RDMA_OPTION_ID_AFONLY; kernel cma.c, cma_check_port and cma_match_private_data): a listener at all IPv6
// addresses has the port for IPv4 too, unless it is for its family only; then one of IPv4 can have the same port, and
// each gets the requests of its family. One of IPv4 is for its family only by default.
func TestListenersOfTheirFamily(t *testing.T) {
	six := netip.MustParseAddr("fd00::3")
	r := newRig(t, false, func(c *Config) { c.Devices = append(c.Devices, DeviceConfig{Name: "c", Addr: six}) })
	ctx := must.Get(r.p.Open("c"))(t)
	defer func() { must.Do(t, ctx.Close()) }()
	var made []verbs.CMID
	listen := func(addr string, set ...bool) (verbs.CMID, error) {
		id := r.b.id()
		made = append(made, id)
		for _, only := range set {
			must.Do(t, id.SetAFOnly(only))
		}
		err := id.Bind(netip.MustParseAddrPort(addr))
		if err == nil {
			err = id.Listen(0)
		}
		return id, err
	}
	// goes checks which listener gets a request to an address; nil: it is refused.
	goes := func(dst netip.Addr, want verbs.CMID) {
		t.Helper()
		src := r.a.addr
		if dst.Is6() {
			src = six
		}
		id := r.a.id()
		must.Do(t, id.ResolveAddr(netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 99), 0))
		r.a.event(verbs.CMAddrResolved)
		must.Do(t, id.ResolveRoute(0))
		r.a.event(verbs.CMRouteResolved)
		must.Do(t, id.Connect(&verbs.ConnParam{QPNum: 0x4242}))
		if want == nil {
			if ev := r.a.event(verbs.CMRejected); ev.Status != verbs.RejInvalidServiceID {
				t.Errorf("a request to %v was rejected with %d", dst, ev.Status)
			}
		} else {
			ev := r.b.event(verbs.CMConnectRequest)
			if ev.ListenID != want {
				t.Errorf("a request to %v came to %v, want %v", dst, ev.ListenID, want)
			}
			r.closeAll(ev.ID)
		}
		r.closeAll(id)
		r.a.drain()
	}
	four := must.Get(listen("0.0.0.0:99"))(t)
	goes(r.b.addr, four)
	goes(six, nil)
	if _, err := listen("[::]:99"); !inUse(err) {
		t.Errorf("[::] beside 0.0.0.0: %v, want EADDRINUSE", err)
	}
	only := must.Get(listen("[::]:99", true))(t)
	goes(r.b.addr, four)
	goes(six, only)
	if err := only.SetAFOnly(false); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("SetAFOnly of a listener: %v, want ErrInvalid", err)
	}
	r.closeAll(four)
	goes(r.b.addr, nil)
	goes(six, only)
	r.closeAll(only)
	for _, l := range []struct {
		addr string
		set  []bool
	}{{"[::]:99", nil}, {"0.0.0.0:99", []bool{false}}, {"[::]:99", []bool{true, false}}} {
		every := must.Get(listen(l.addr, l.set...))(t)
		goes(r.b.addr, every)
		goes(six, every)
		if _, err := listen("[::]:99", true); !inUse(err) {
			t.Errorf("beside %s for both families: %v, want EADDRINUSE", l.addr, err)
		}
		r.closeAll(every)
	}
	r.b.drain()
	r.closeAll(made...)
}

// Rule: a port that is shared has no socket until its last holder listens; then another process reaches it.
func TestSharedPortIsHeardOnceItListens(t *testing.T) {
	one, two := newPeerProcess(t), newPeerProcess(t)
	var ids [2]*cmID
	for i := range ids {
		ids[i] = one.id()
		must.Do(t, ids[i].SetReuseAddr(true))
		must.Do(t, ids[i].Bind(at(ids[0].LocalAddr().Port())))
	}
	if err := ids[0].Listen(0); !inUse(err) {
		t.Errorf("listening on a shared port: %v, want EADDRINUSE", err)
	}
	must.Do(t, ids[1].Close())
	must.Do(t, ids[0].Listen(0))
	id := two.asks(ids[0].LocalAddr())
	child := one.event(verbs.CMConnectRequest).ID.(*cmID)
	if !id.path.Far() || !child.path.Far() {
		t.Errorf("the paths are %+v and %+v, want UDP", id.path, child.path)
	}
	must.Do(t, child.Reject(nil))
	must.Do(t, child.Close())
	two.event(verbs.CMRejected)
}

// Rule (IPV6_V6ONLY): listeners at all addresses that are for their family only have a port side by side between processes
// too, whether they share it or not, and each hears the requests of its family.
func TestAFOnlyListenersOfOnePortHearOtherProcesses(t *testing.T) {
	one, two := newPeerProcess(t), newPeerProcess(t)
	for _, reuse := range []bool{false, true} {
		four, six := one.id(), one.id()
		must.Do(t, four.SetReuseAddr(reuse))
		must.Do(t, six.SetReuseAddr(reuse))
		must.Do(t, six.SetAFOnly(true))
		must.Do(t, six.Bind(netip.MustParseAddrPort("[::]:0")))
		port := six.LocalAddr().Port()
		must.Do(t, six.Listen(0))
		if err := four.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), port)); err != nil {
			t.Fatalf("0.0.0.0 beside [::] for IPv6 only: %v", err)
		}
		must.Do(t, four.Listen(0))
		for dst, want := range map[netip.Addr]*cmID{netip.IPv6Loopback(): six, netip.MustParseAddr("127.0.0.1"): four} {
			id := two.asks(netip.AddrPortFrom(dst, port))
			ev := one.event(verbs.CMConnectRequest)
			if child := ev.ID.(*cmID); ev.ListenID != want || !child.path.Far() {
				t.Errorf("a request to %v came to %v by %+v, want to %v by UDP", dst, ev.ListenID, child.path, want)
			}
			must.Do(t, ev.ID.Reject(nil))
			must.Do(t, ev.ID.Close())
			two.event(verbs.CMRejected)
			must.Do(t, id.Close())
		}
		must.Do(t, four.Close())
		must.Do(t, six.Close())
	}
}

// Rule: a port stays shared if Listen cannot open its socket.
func TestAPortStaysSharedWithoutASocket(t *testing.T) {
	x := newPeerProcess(t)
	taken := must.Get(udp.Listen(at(0), udp.Options{}))(t)
	defer func() { must.Do(t, taken.Close()) }()
	port := taken.Local().Port()
	var ids [2]*cmID
	for i := range ids {
		ids[i] = x.id()
		must.Do(t, ids[i].SetReuseAddr(true))
	}
	must.Do(t, ids[0].Bind(at(port)))
	if err := ids[0].Listen(0); !inUse(err) {
		t.Errorf("listening on a port that another process has: %v, want EADDRINUSE", err)
	}
	if err := ids[1].Bind(at(port)); err != nil {
		t.Errorf("sharing the port of one that does not listen: %v", err)
	}
}

// Rule: a listener for IPv6 at all addresses has the port beside one at an IPv4 address.
func TestSixAtAllAddressesBesideFourAtOne(t *testing.T) {
	r := newRig(t, false)
	four, six := r.b.id(), r.b.id()
	must.Do(t, four.Bind(netip.AddrPortFrom(r.b.addr, 99)))
	must.Do(t, four.Listen(0))
	must.Do(t, six.SetAFOnly(true))
	must.Do(t, six.Bind(netip.MustParseAddrPort("[::]:99")))
	must.Do(t, six.Listen(0))
	r.closeAll(four, six)
}
