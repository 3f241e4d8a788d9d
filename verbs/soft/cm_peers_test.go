package soft

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// peerProcess is what one process has: a provider on a fabric of its own.
type peerProcess struct {
	t  *testing.T
	p  *Provider
	ch verbs.CMChannel
}

func newPeerProcess(t *testing.T) *peerProcess {
	t.Helper()
	p := must.Get(New(Config{
		Fabric:  fabric.New(fabric.Config{JumboMTU: true}),
		Devices: []DeviceConfig{{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1"), Link: LinkPeers}},
	}))(t)
	ch := must.Get(p.CreateCMChannel())(t)
	t.Cleanup(func() { must.Do(t, ch.Close()) })
	return &peerProcess{t, p, ch}
}

func (x *peerProcess) id() *cmID {
	x.t.Helper()
	id := must.Get(x.ch.CreateID(verbs.PSTCP, 0))(x.t)
	x.t.Cleanup(func() { must.Do(x.t, id.Close()) })
	return id.(*cmID)
}

// listens returns a listener at an address.
func (x *peerProcess) listens(at string) *cmID {
	x.t.Helper()
	id := x.id()
	must.Do(x.t, id.Bind(netip.MustParseAddrPort(at)))
	must.Do(x.t, id.Listen(0))
	return id
}

// asks begins to connect, with a queue pair number of no queue pair.
func (x *peerProcess) asks(dst netip.AddrPort) *cmID {
	x.t.Helper()
	id := x.id()
	must.Do(x.t, id.ResolveAddr(netip.AddrPort{}, dst, 0))
	x.event(verbs.CMAddrResolved)
	must.Do(x.t, id.ResolveRoute(0))
	x.event(verbs.CMRouteResolved)
	must.Do(x.t, id.Connect(&verbs.ConnParam{QPNum: 77}))
	return id
}

// event waits for an event and acknowledges it.
func (x *peerProcess) event(want verbs.CMEventType) verbs.CMEvent {
	x.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		ev, ok, err := x.ch.GetEvent()
		must.Do(x.t, err)
		if !ok {
			continue
		}
		x.ch.Ack(ev)
		if ev.Type != want {
			x.t.Fatalf("event %v (status %d), want %v", ev.Type, ev.Status, want)
		}
		return ev
	}
	x.t.Fatalf("no event %v", want)
	return verbs.CMEvent{}
}

func at(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
}

// Rule: a dialer that asks its own process finds the listener there, without UDP: by the address of the
// device, and if the listener is at all addresses by any of the machine. Another process is asked by UDP.
func TestWhoIsThere(t *testing.T) {
	one, two := newPeerProcess(t), newPeerProcess(t)
	everywhere := one.listens("[::]:0")
	port := everywhere.LocalAddr().Port()
	addrs := []netip.AddrPort{at(port), netip.AddrPortFrom(netip.IPv6Loopback(), port)}
	if udp.ReportsTo { // else an answer may come from another address, and is not taken
		addrs = append(addrs, netip.AddrPortFrom(netip.MustParseAddr("127.3.2.1"), port))
	}
	for _, dst := range addrs {
		for x, far := range map[*peerProcess]bool{one: false, two: true} {
			id := x.asks(dst)
			child := one.event(verbs.CMConnectRequest).ID.(*cmID)
			if id.path.Far() != far || child.path.Far() != far {
				t.Errorf("%v: the paths are %+v and %+v, want UDP ports: %v", dst, id.path, child.path, far)
			}
			_, want, err := roce.Route(dst)
			must.Do(t, err)
			if far && (id.mtu != want || child.req.PathMTU != cm.MTUCode(want)) {
				t.Errorf("%v: asked for MTU %d, code %d, want that of the route, %d", dst, id.mtu, child.req.PathMTU, want)
			}
			if far && udp.ReportsTo && (child.path.Peer != id.path.Local || child.path.Local != id.path.Peer || child.path.PeerPort != id.path.LocalPort || child.path.LocalPort != id.path.PeerPort) {
				t.Errorf("%v: the paths %+v and %+v are not each other's reverse", dst, id.path, child.path)
			}
			must.Do(t, child.Reject(nil))
			must.Do(t, child.Close())
			x.event(verbs.CMRejected)
		}
	}
}

// Rule: a request to a port without a socket is rejected at once, not after the retries.
func TestPortWithoutASocket(t *testing.T) {
	if sys.Portable {
		t.Skip("package net does not report what a receiver's system refuses")
	}
	x := newPeerProcess(t)
	gone := newPeerProcess(t)
	l := gone.listens("127.0.0.1:0")
	port := l.LocalAddr().Port()
	must.Do(t, l.Close())
	began := time.Now()
	x.asks(at(port))
	if ev := x.event(verbs.CMRejected); ev.Status != verbs.RejInvalidServiceID {
		t.Errorf("rejected with reason %d, want %d", ev.Status, verbs.RejInvalidServiceID)
	}
	if took := time.Since(began); took > 500*time.Millisecond { // the retries take 1.07 s
		t.Errorf("it took %v", took)
	}
}

// Rule: two processes cannot listen at one port; the error names the one that does.
func TestPortOfAnotherProcess(t *testing.T) {
	one, two := newPeerProcess(t), newPeerProcess(t)
	l := one.listens("127.0.0.1:0")
	err := two.id().Bind(l.LocalAddr())
	if !errors.Is(err, syscall.EADDRINUSE) || !sys.Portable && !strings.Contains(err.Error(), "process ") {
		t.Errorf("the second: %v, want %v and the process that has the port", err, syscall.EADDRINUSE)
	}
	if err := one.id().Bind(l.LocalAddr()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "CM ID") {
		t.Errorf("in one process: %v, want %v and the identifier that has the port", err, syscall.EADDRINUSE)
	}
}

// Rule: a socket is closed with the last of its listener and the connections that came by it.
func TestSocketOutlivesItsListener(t *testing.T) {
	one, two := newPeerProcess(t), newPeerProcess(t)
	l := one.id()
	must.Do(t, l.Bind(at(0)))
	must.Do(t, l.Listen(0))
	addr := l.LocalAddr()
	two.asks(addr)
	child := one.event(verbs.CMConnectRequest).ID.(*cmID)
	must.Do(t, l.Close())
	if err := two.id().Bind(addr); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("while a connection uses the port: %v, want %v", err, syscall.EADDRINUSE)
	}
	must.Do(t, child.Reject(nil))
	two.event(verbs.CMRejected)
	must.Do(t, child.Close())
	must.Do(t, two.id().Bind(addr))
}

// Rule: a listener at an address is not reached by another address, although the process has a socket with the same
// port there, that of datagrams.
func TestAListenerAtOneAddress(t *testing.T) {
	if !udp.ReportsTo {
		t.Skip("this system may have one loopback address only")
	}
	one, two := newPeerProcess(t), newPeerProcess(t)
	l := one.listens("127.0.0.1:0")
	other := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), l.LocalAddr().Port())
	datagrams := must.Get(one.ch.CreateID(verbs.PSUDP, 0))(t)
	t.Cleanup(func() { must.Do(t, datagrams.Close()) })
	must.Do(t, datagrams.Bind(other))
	must.Do(t, datagrams.Listen(0))
	for from, x := range map[string]*peerProcess{"another process": two, "the same process": one} {
		x.asks(other)
		if ev := x.event(verbs.CMRejected); ev.Status != verbs.RejInvalidServiceID {
			t.Errorf("from %s: rejected with reason %d, want %d", from, ev.Status, verbs.RejInvalidServiceID)
		}
		x.asks(l.LocalAddr())
		child := one.event(verbs.CMConnectRequest).ID.(*cmID)
		must.Do(t, child.Reject(nil))
		must.Do(t, child.Close())
		x.event(verbs.CMRejected)
	}
}

// Rule: a port may be mapped on the way (NAT, containers): a request goes to the listener whose socket it
// came to, whatever port it names.
func TestMappedPort(t *testing.T) {
	one, two := newPeerProcess(t), newPeerProcess(t)
	l := one.listens("127.0.0.1:0")
	id := two.id()
	must.Do(t, id.ResolveAddr(netip.AddrPort{}, at(1), 0)) // the address that is mapped
	two.event(verbs.CMAddrResolved)
	must.Do(t, id.ResolveRoute(0))
	two.event(verbs.CMRouteResolved)
	id.path.PeerPort = l.LocalAddr().Port() // as the mapping does
	must.Do(t, id.Connect(&verbs.ConnParam{QPNum: 77}))
	child := one.event(verbs.CMConnectRequest).ID.(*cmID)
	if child.LocalAddr() != l.LocalAddr() {
		t.Errorf("the request came to %v, want %v", child.LocalAddr(), l.LocalAddr())
	}
	must.Do(t, child.Reject(nil))
	two.event(verbs.CMRejected)
	must.Do(t, child.Close())
}

// Rule: an accepted request gives its path no socket of its own, which would take another path's place, before the
// address of the peer is proven.
func TestAnUnprovenPathHasNoSocketOfItsOwn(t *testing.T) {
	if sys.Portable {
		t.Skip("only Linux connects sockets, and has /proc/net/udp")
	}
	server, silent, other := newPeerProcess(t), newPeerProcess(t), newPeerProcess(t)
	l := server.listens("127.0.0.1:0")
	ctx := must.Get(server.p.Open("soft0"))(t)
	t.Cleanup(func() { must.Do(t, ctx.Close()) })
	pd := must.Get(ctx.AllocPD())(t)
	t.Cleanup(func() { must.Do(t, pd.Close()) })
	cq := must.Get(ctx.CreateCQ(8, nil, 0, 0))(t)
	t.Cleanup(func() { must.Do(t, cq.Close()) })
	own := func(id *cmID) bool { // the path of id has a socket of its own
		port := func(a uint16) string { return fmt.Sprintf(":%04X", a) }
		b := must.Get(os.ReadFile("/proc/net/udp"))(t)
		return slices.ContainsFunc(strings.Split(string(b), "\n"), func(line string) bool {
			f := strings.Fields(line)
			return len(f) > 2 && strings.HasSuffix(f[1], port(id.path.LocalPort)) && strings.HasSuffix(f[2], port(id.path.PeerPort))
		})
	}
	eventually := func(what string, id *cmID) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !own(id); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%s has no socket of its own", what)
			}
		}
	}
	accepts := func(x *peerProcess) (asking, child *cmID) {
		asking = x.asks(l.LocalAddr())
		child = server.event(verbs.CMConnectRequest).ID.(*cmID)
		t.Cleanup(func() { must.Do(t, child.Close()) })
		must.Do(t, child.CreateQP(pd, &verbs.QPInitAttr{Type: verbs.QPTRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
		must.Do(t, child.Accept(nil))
		x.event(verbs.CMConnectResponse)
		return asking, child
	}
	asking, unproven := accepts(silent)
	confirming, proven := accepts(other)
	must.Do(t, confirming.Accept(nil)) // the RTU
	server.event(verbs.CMEstablished)
	eventually("the proven path", proven) // sockets are opened in the order in which they were asked for
	if own(unproven) {
		t.Error("the path whose address is not proven has a socket of its own")
	}
	must.Do(t, asking.Accept(nil))
	server.event(verbs.CMEstablished)
	eventually("the path that was proven later", unproven)
}

// Rule: a queue pair takes packets of its path only: one in the process takes none from a socket, and one
// with a path between processes none from another port of the peer or to another of its own.
func TestPacketsOfOtherPaths(t *testing.T) {
	f := fabric.New(fabric.Config{Virtual: true})
	here, there := verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.1")), verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.2"))
	port := must.Get(f.Attach(here, "here", idle{}))(t)
	t.Cleanup(port.Detach)
	far := wire.Path{Peer: there, PeerPort: 7, Local: here, LocalPort: 9}
	var inside, between *fabric.Route
	port.Exclusive(func() { inside, between = port.Route(wire.To(there)), port.Route(far) })
	for what, x := range map[string]struct {
		path            wire.Path
		inside, between bool
	}{
		"of the process":    {wire.To(there), true, false},
		"of the path":       {far, false, true},
		"another peer port": {wire.Path{Peer: there, PeerPort: 8, Local: here, LocalPort: 9}, false, false},
		"another port":      {wire.Path{Peer: there, PeerPort: 7, Local: here, LocalPort: 8}, false, false},
		"another address":   {wire.Path{Peer: there, PeerPort: 7, Local: there, LocalPort: 9}, false, false},
		"another peer":      {wire.Path{Peer: here, PeerPort: 7, Local: here, LocalPort: 9}, false, false},
	} {
		port.Exclusive(func() {
			k := port.Get()
			if k.Src = x.path.Peer; x.path.Far() {
				k.SetFar(&x.path)
			}
			if a, b := inside.Carries(k), between.Carries(k); a != x.inside || b != x.between {
				t.Errorf("a packet %s is taken within the process: %v, between processes: %v; want %v, %v", what, a, b, x.inside, x.between)
			}
			k.Release()
		})
	}
}

// idle is an endpoint that does nothing.
type idle struct{}

func (idle) Progress(time.Duration) (time.Duration, bool) { return 0, false }
