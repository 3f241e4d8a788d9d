package soft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
)

func (e *cmEnd) ib(ps verbs.PortSpace, port uint16) verbs.IBAddr {
	return verbs.NewIBAddr(verbs.GIDFromAddr(e.addr), ps, port)
}

// Rule (kernel cma.c, rdma_bind_addr, cma_select_ib_ps): an address of InfiniBand names a device by its GID, a partition
// and a service of the identifier's port space. Ports of both kinds of addresses are the same.
func TestBindIB(t *testing.T) {
	r := newRig(t, false)
	stranger, otherPart := r.a.ib(verbs.PSTCP, 0), r.a.ib(verbs.PSTCP, 0)
	stranger.GID[15] = 77
	otherPart.PKey = 0x8001
	limited := r.a.ib(verbs.PSTCP, 7)
	limited.PKey = 0x7fff
	for what, c := range map[string]struct {
		ps   verbs.PortSpace
		at   verbs.IBAddr
		want error
		sid  uint64
	}{
		"a port":                       {verbs.PSTCP, r.a.ib(verbs.PSTCP, 7), nil, cm.ServiceID(verbs.PSTCP, 7)},
		"a limited member":             {verbs.PSTCP, limited, nil, cm.ServiceID(verbs.PSTCP, 7)},
		"port space TCP of one of IB":  {verbs.PSIB, r.a.ib(verbs.PSTCP, 7), nil, cm.ServiceID(verbs.PSTCP, 7)},
		"the identifier's port space":  {verbs.PSIB, verbs.IBAddr{PKey: 0xffff, SID: 7, SIDMask: verbs.PortBits}, nil, cm.ServiceID(verbs.PSIB, 7)},
		"another port space":           {verbs.PSTCP, r.a.ib(verbs.PSUDP, 7), syscall.EPROTONOSUPPORT, 0},
		"a service of no port space":   {verbs.PSIB, verbs.IBAddr{PKey: 0xffff, SID: 1 << 40, SIDMask: verbs.AllServiceBits}, syscall.EPROTONOSUPPORT, 0},
		"a GID that no device has":     {verbs.PSTCP, stranger, syscall.ENODEV, 0},
		"a partition that no port has": {verbs.PSTCP, otherPart, syscall.ENODEV, 0},
	} {
		id := must.Get(r.a.ch.CreateID(c.ps, 0))(t)
		err := id.BindIB(c.at)
		if local, _ := id.IBAddrs(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || local.SID != c.sid {
			t.Errorf("%s: error %v at %v, want %v and service 0x%x", what, err, local, c.want, c.sid)
		}
		if err != nil {
			must.Do(t, id.Bind(netip.AddrPortFrom(r.a.addr, 7))) // it is as it was
		}
		r.closeAll(id)
	}
	tcp := r.a.listen(0)
	id := r.a.id()
	if err := id.BindIB(r.a.ib(verbs.PSTCP, tcp.LocalAddr().Port())); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the port of a listener at an IP address: %v, want EADDRINUSE", err)
	}
	must.Do(t, id.Bind(netip.AddrPortFrom(r.a.addr, 0)))
	if err := id.ResolveIB(verbs.IBAddr{}, r.b.ib(verbs.PSTCP, 7), 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a GID from an identifier at an IP address: %v, want ErrInvalid", err)
	}
	r.closeAll(id, tcp)
}

// Rule (kernel cma.c, cma_find_listener, cma_save_net_info): a request with a GID has no header, so a listener at an IP
// address refuses it, also when its first bytes are a header's size of zeros. One to a listener with a GID is private data
// as a whole.
func TestRequestsWithAndWithoutAHeader(t *testing.T) {
	r := newRig(t, false)
	ip := r.b.listen(0)
	id := r.a.id()
	must.Do(t, id.ResolveIB(verbs.IBAddr{}, r.b.ib(verbs.PSTCP, ip.LocalAddr().Port()), time.Second))
	r.a.event(verbs.CMAddrResolved)
	must.Do(t, id.ResolveRoute(time.Second))
	r.a.event(verbs.CMRouteResolved)
	if err := id.Connect(&verbs.ConnParam{QPNum: 5, PrivateData: make([]byte, verbs.MaxPrivateConnectIB+1)}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("too much private data: %v, want ErrInvalid", err)
	}
	must.Do(t, id.Connect(&verbs.ConnParam{QPNum: 5}))
	r.a.event(verbs.CMRejected)

	l := r.b.id()
	must.Do(t, l.BindIB(r.b.ib(verbs.PSTCP, 0)))
	must.Do(t, l.Listen(0))
	at, _ := l.IBAddrs()
	asks := r.a.route(netip.AddrPortFrom(r.b.addr, at.Port()))
	must.Do(t, asks.Connect(&verbs.ConnParam{QPNum: 6, PrivateData: []byte("x")}))
	ev := r.b.event(verbs.CMConnectRequest)
	if got := ev.Conn.PrivateData; len(got) != verbs.MaxPrivateConnectIB || got[cm.ConnHeaderSize] != 'x' {
		t.Errorf("the request brought % x, want %d bytes, the header among them", got, verbs.MaxPrivateConnectIB)
	}
	r.closeAll(ev.ID)
	r.a.event(verbs.CMRejected)
	r.closeAll(id, asks, ip, l)
}

// Rule: in port space UDP too, and the answer brings the way to the peer.
func TestLookupWithAGID(t *testing.T) {
	r := newRig(t, false)
	l := must.Get(r.b.ch.CreateID(verbs.PSUDP, 0))(t)
	must.Do(t, l.BindIB(verbs.NewIBAddr(verbs.GID{}, verbs.PSUDP, 0))) // any device
	must.Do(t, l.Listen(0))
	at, _ := l.IBAddrs()
	id := must.Get(r.a.ch.CreateID(verbs.PSUDP, 0))(t)
	must.Do(t, id.ResolveIB(r.a.ib(verbs.PSUDP, 0), r.b.ib(verbs.PSUDP, at.Port()), time.Second))
	r.a.event(verbs.CMAddrResolved)
	must.Do(t, id.ResolveRoute(time.Second))
	r.a.event(verbs.CMRouteResolved)
	must.Do(t, id.Connect(&verbs.ConnParam{PrivateData: make([]byte, verbs.MaxPrivateUDPIB)}))
	ev := r.b.event(verbs.CMConnectRequest)
	if local, peer := ev.ID.IBAddrs(); len(ev.UD.PrivateData) != verbs.MaxPrivateUDPIB || local.GID != verbs.GIDFromAddr(r.b.addr) || peer.GID != verbs.GIDFromAddr(r.a.addr) {
		t.Errorf("%d bytes of private data from %v to %v", len(ev.UD.PrivateData), peer, local)
	}
	must.Do(t, ev.ID.Accept(&verbs.ConnParam{QPNum: 0x4242}))
	if ev := r.a.event(verbs.CMEstablished); ev.UD.QPNum != 0x4242 || ev.UD.AH.DGID != verbs.GIDFromAddr(r.b.addr) {
		t.Errorf("the answer brings queue pair 0x%x at %v", ev.UD.QPNum, ev.UD.AH.DGID)
	}
	r.closeAll(id, ev.ID, l)
}
