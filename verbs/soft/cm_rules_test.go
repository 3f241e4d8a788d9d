package soft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Ports: one holder per device, or one for all devices; free again after Close.
func TestCMPorts(t *testing.T) {
	r := newRig(t, false)
	bind := func(addr string) (verbs.CMID, error) {
		id := r.a.id()
		return id, id.Bind(netip.MustParseAddrPort(addr))
	}
	inUse := func(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
	one := must.Get(bind("10.0.0.1:99"))(t)
	if id, err := bind("10.0.0.1:99"); !inUse(err) {
		t.Errorf("the same port twice: %v, want EADDRINUSE", err)
	} else {
		r.closeAll(id)
	}
	if id, err := bind("0.0.0.0:99"); !inUse(err) {
		t.Errorf("a port held on one device, on all: %v, want EADDRINUSE", err)
	} else {
		r.closeAll(id)
	}
	other, err := bind("10.0.0.2:99")
	if err != nil {
		t.Errorf("the same port on another device: %v", err)
	}
	r.closeAll(one, other)
	all, err := bind("0.0.0.0:99")
	if err != nil {
		t.Errorf("on all devices, after it was freed: %v", err)
	}
	if id, err := bind("[::ffff:10.0.0.2]:99"); !inUse(err) {
		t.Errorf("a port held on all devices, on one: %v, want EADDRINUSE", err)
	} else {
		r.closeAll(id)
	}
	r.closeAll(all)
	id, err := bind("10.7.7.7:1")
	if !errors.Is(err, verbs.ErrUnknownDevice) || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("an address of no device: %v, want ErrUnknownDevice and ENODEV", err)
	}
	r.closeAll(id)
	seen := map[uint16]bool{}
	var ids []verbs.CMID
	for range 100 {
		id := must.Get(bind("10.0.0.1:0"))(t)
		if p := id.LocalAddr().Port(); p < firstEphemeral || p > lastEphemeral || seen[p] {
			t.Errorf("chosen port %d: out of range or twice", p)
		} else {
			seen[p] = true
		}
		ids = append(ids, id)
	}
	r.closeAll(ids...)
}

// A listener on all devices is reached on each of them.
func TestCMListenEverywhere(t *testing.T) {
	r := newRig(t, false)
	l := r.b.id()
	must.Do(t, l.Bind(netip.MustParseAddrPort("0.0.0.0:4444")))
	must.Do(t, l.Listen(0))
	if l.Device() != "" || l.LocalAddr() != netip.MustParseAddrPort("0.0.0.0:4444") {
		t.Errorf("a listener on all devices is on %q at %v", l.Device(), l.LocalAddr())
	}
	for _, d := range []struct{ name, addr string }{{"a", "10.0.0.1:4444"}, {"b", "10.0.0.2:4444"}} {
		id := r.a.resolve(netip.MustParseAddrPort(d.addr))
		must.Do(t, id.Connect(nil))
		asked := r.b.event(verbs.CMConnectRequest).ID
		if asked.Device() != d.name || asked.LocalAddr().String() != d.addr {
			t.Errorf("connecting to %s arrived on %q at %v", d.addr, asked.Device(), asked.LocalAddr())
		}
		r.closeAll(asked)
		r.a.event(verbs.CMRejected)
		r.closeAll(id)
	}
	r.closeAll(l)
}

// The device of an address is that of the source, or the owner of the destination, or the first.
func TestCMChoosesTheDevice(t *testing.T) {
	r := newRig(t, false)
	for _, c := range []struct{ src, dst, want string }{
		{"10.0.0.2:0", "10.0.0.1:5", "b"},
		{"0.0.0.0:0", "10.0.0.2:5", "b"},
		{"0.0.0.0:77", "10.0.0.2:5", "b"},
		{"0.0.0.0:0", "10.9.9.9:5", "a"},
	} {
		id := r.a.id()
		src := netip.MustParseAddrPort(c.src)
		must.Do(t, id.ResolveAddr(src, netip.MustParseAddrPort(c.dst), time.Second))
		r.a.event(verbs.CMAddrResolved)
		if id.Device() != c.want || src.Port() != 0 && id.LocalAddr().Port() != src.Port() || id.LocalAddr().Port() == 0 {
			t.Errorf("from %s to %s: on %q at %v, want %q", c.src, c.dst, id.Device(), id.LocalAddr(), c.want)
		}
		// From here on, a port held on all devices is held only on the selected one.
		if src.Port() != 0 {
			other := r.a.id()
			if err := other.Bind(netip.AddrPortFrom(r.a.addr, src.Port())); err != nil {
				t.Errorf("port %d, settled on %q, on another device: %v", src.Port(), id.Device(), err)
			}
			r.closeAll(other)
		}
		r.closeAll(id)
	}
	id := r.a.id()
	must.Do(t, id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:5"), 0))
	r.a.event(verbs.CMAddrResolved)
	if id.Device() != "b" {
		t.Errorf("without a source: on %q, want b", id.Device())
	}
	r.closeAll(id)
}

// An invalid call returns an error that describes the mistake, and changes nothing.
func TestCMBadCalls(t *testing.T) {
	r := newRig(t, false)
	for _, ps := range []verbs.PortSpace{verbs.PSIPoIB, 0} {
		if _, err := r.a.ch.CreateID(ps, 0); !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("port space 0x%x: %v, want ErrNotSupported", ps, err)
		}
	}
	fresh := r.a.id()
	l := r.b.listen(0)
	init := func() *verbs.QPInitAttr {
		return &verbs.QPInitAttr{SendCQ: r.a.cq, RecvCQ: r.a.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
	}
	resolved := r.a.resolve(l.LocalAddr())
	bare := r.a.id()
	must.Do(t, bare.ResolveAddr(netip.AddrPortFrom(r.a.addr, 0), l.LocalAddr(), 0))
	r.a.event(verbs.CMAddrResolved)
	long := func(n int) *verbs.ConnParam { return &verbs.ConnParam{PrivateData: make([]byte, n)} }
	for what, err := range map[string]error{
		"Connect before anything":           fresh.Connect(nil),
		"Accept before anything":            fresh.Accept(nil),
		"Reject before anything":            fresh.Reject(nil),
		"Disconnect before anything":        fresh.Disconnect(),
		"ResolveRoute before ResolveAddr":   fresh.ResolveRoute(0),
		"CreateQP before there is a device": fresh.CreateQP(r.a.pd, init()),
		"ResolveAddr to nowhere":            fresh.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("0.0.0.0:5"), 0),
		"ResolveAddr to port 0":             fresh.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:0"), 0),
		"Migrate to nothing":                fresh.Migrate(nil),
		"Listen twice":                      l.Listen(0),
		"Bind of a listener":                l.Bind(netip.MustParseAddrPort("10.0.0.2:1")),
		"Connect of a listener":             l.Connect(nil),
		"CreateQP on another device's PD":   bare.CreateQP(r.b.pd, init()),
		"Connect without a route":           bare.Connect(nil),
		"CreateQP twice":                    resolved.CreateQP(r.a.pd, init()),
		"Listen on what is resolved":        resolved.Listen(0),
		"57 bytes of private data":          resolved.Connect(long(verbs.MaxPrivateConnect + 1)),
		"too many responder resources":      resolved.Connect(&verbs.ConnParam{ResponderResources: 200}),
		"too great an initiator depth":      resolved.Connect(&verbs.ConnParam{InitiatorDepth: 200}),
		"a retry count of 8":                resolved.Connect(&verbs.ConnParam{RetryCount: 8}),
		"an RNR retry count of 8":           resolved.Connect(&verbs.ConnParam{RNRRetryCount: 8}),
	} {
		var oe *verbs.OpError
		if !errors.As(err, &oe) || !errors.Is(err, verbs.ErrInvalid) || oe.Op == "" || oe.Errno == 0 {
			t.Errorf("%s: %v, want an *OpError that is ErrInvalid", what, err)
		}
	}
	must.Do(t, resolved.Connect(long(verbs.MaxPrivateConnect)))
	asked := r.b.event(verbs.CMConnectRequest).ID
	r.b.qp(asked)
	for what, err := range map[string]error{
		"197 bytes of private data":     asked.Accept(long(verbs.MaxPrivateAccept + 1)),
		"149 bytes of private data":     asked.Reject(make([]byte, verbs.MaxPrivateReject+1)),
		"Disconnect before Accept":      asked.Disconnect(),
		"Connect of what was asked":     asked.Connect(nil),
		"Disconnect while connecting":   resolved.Disconnect(),
		"Accept by who connects":        resolved.Accept(nil),
		"Connect while connecting":      resolved.Connect(nil),
		"ResolveRoute while connecting": resolved.ResolveRoute(0),
	} {
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	must.Do(t, asked.Accept(long(verbs.MaxPrivateAccept)))
	r.a.event(verbs.CMEstablished)
	r.b.event(verbs.CMEstablished)
	if err := asked.Accept(nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("Accept twice: %v, want ErrInvalid", err)
	}
	r.closeAll(fresh, bare, resolved, asked, l)
}

// An identifier lives until its events are acknowledged. Events not taken vanish with it, and
// move with a migrated identifier.
func TestCMEvents(t *testing.T) {
	r := newRig(t, false)
	l := r.b.listen(0)
	id := r.a.resolve(l.LocalAddr())
	must.Do(t, id.Connect(nil))
	r.until("events are queued", func() bool { return l.(*cmID).ch.pending() == 1 })
	ev, ok, err := r.b.ch.GetEvent()
	if err != nil || !ok {
		t.Fatalf("no event: %v", err)
	}
	other := must.Get(r.p.CreateCMChannel())(t)
	for _, x := range []verbs.CMID{l, ev.ID} {
		if err := x.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("closing %v with an unacknowledged event: %v, want ErrBusy", x, err)
		}
		if err := x.Migrate(other); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("migrating %v with an unacknowledged event: %v, want ErrBusy", x, err)
		}
	}
	r.b.ch.Ack(ev)
	must.Do(t, ev.ID.Migrate(other))
	if err := other.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing a channel with an identifier: %v, want ErrBusy", err)
	}
	r.b.qp(ev.ID)
	must.Do(t, ev.ID.Accept(nil))
	r.a.event(verbs.CMEstablished)
	r.until("events are queued", func() bool { return other.(*cmChannel).pending() == 1 })
	must.Do(t, ev.ID.Migrate(r.b.ch)) // with ESTABLISHED not yet taken
	if n := other.(*cmChannel).pending(); n != 0 {
		t.Errorf("%d events stayed behind", n)
	}
	r.b.event(verbs.CMEstablished)
	must.Do(t, other.Close())
	must.Do(t, other.Close())
	if _, _, err := other.GetEvent(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("GetEvent of a closed channel: %v, want ErrClosed", err)
	}
	if _, err := other.CreateID(verbs.PSTCP, 0); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("CreateID of a closed channel: %v, want ErrClosed", err)
	}
	if err := id.Migrate(other); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Migrate to a closed channel: %v, want ErrClosed", err)
	}
	// A listener's undelivered request moves with it.
	third := must.Get(r.p.CreateCMChannel())(t)
	id2 := r.a.resolve(l.LocalAddr())
	must.Do(t, id2.Connect(nil))
	r.until("events are queued", func() bool { return l.(*cmID).ch.pending() == 1 })
	must.Do(t, l.Migrate(third))
	must.Do(t, id2.Close())
	r.until("events are queued", func() bool { return third.(*cmChannel).pending() == 2 })
	for _, want := range []verbs.CMEventType{verbs.CMConnectRequest, verbs.CMRejected} {
		got, ok, err := third.GetEvent()
		if err != nil || !ok || got.Type != want {
			t.Fatalf("on the new channel: %v, %v, %v; want %v", got.Type, ok, err, want)
		}
		third.Ack(got)
		if want == verbs.CMRejected {
			r.closeAll(got.ID)
		}
	}
	r.closeAll(id, ev.ID, l)
	must.Do(t, third.Close())
}

func (c *cmChannel) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) - c.taken
}

// The channel's descriptor is readable, or its notification was called, while an event is queued.
func TestCMChannelAnnounces(t *testing.T) {
	r := newRig(t, false)
	rings := 0
	r.a.ch.Notify(func() { rings++ })
	before := rings
	id := r.a.id()
	must.Do(t, id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.2:5"), 0))
	if rings == before {
		t.Error("an event was queued and nobody was told")
	}
	r.a.event(verbs.CMAddrResolved)
	r.a.ch.Notify(nil)
	r.closeAll(id)
}

// A lost RTU: the first data establishes the passive side, long before the reply is repeated.
func TestCMDataEstablishes(t *testing.T) {
	r := newRig(t, false)
	l := r.b.listen(0)
	ida := r.a.resolve(l.LocalAddr())
	must.Do(t, ida.Connect(nil))
	idb := r.b.event(verbs.CMConnectRequest).ID
	r.b.qp(idb)
	r.lose(r.a, r.b, 1, 1) // the RTU
	must.Do(t, idb.Accept(nil))
	r.a.event(verbs.CMEstablished)
	wrs := must.Get(mem.Map(4096, mem.Options{}))(t)
	defer wrs.Unmap()
	e := &peer{w: &world{t: t, fab: r.fab}, qp: ida.QP().(*queuePair), wrs: wrs}
	e.mustPost(e.send(1, verbs.WRRDMAWrite, 0)) // of no bytes, so any key is valid
	for r.fab.Step() {
	}
	if now := r.fab.Now(); now > 50*time.Millisecond {
		t.Fatalf("at %v the reply was repeated already", now)
	}
	if ev, ok := r.b.take(); !ok || ev.Type != verbs.CMEstablished {
		t.Errorf("after data arrived: %v, %v; want ESTABLISHED", ev.Type, ok)
	}
	r.closeAll(ida, idb, l)
}

// Rule: a request does not choose how long the accepting side waits for answers, nor how often it
// retries. Any peer can send the codes 0 and 31, and a count of 0, in a REQ.
func TestARequestDoesNotChooseTheAcceptorsWaits(t *testing.T) {
	for _, asked := range []uint8{0, 1, 18, 31} {
		for own, want := range map[uint8]uint8{0: verbs.DefaultAckTimeout, 1: ackDelay, 15: 15, 31: 31} {
			r := newRig(t, false)
			l := r.b.listen(0)
			ida := r.a.resolve(l.LocalAddr()).(*cmID)
			ida.dev.exclusive(func() {
				var private [cm.PrivateREQ]byte
				cm.ConnHeader{SrcPort: 1, Src: r.a.addr, Dst: r.b.addr}.Put(&private)
				ida.connect = cm.ConnectParam{
					Dst: wire.To(verbs.GIDFromAddr(r.b.addr)), ServiceID: cm.ServiceID(verbs.PSTCP, l.LocalAddr().Port()), QPN: ida.qp.number,
					MTU: verbs.MTU1024, AckTimeout: asked, RetryCount: asked % 8, Private: private[:],
				}
				var err error
				ida.conn, err = ida.dev.cm.machine.Connect(r.fab.Now(), &ida.connect, ida)
				must.Do(t, err)
				ida.become(idConnecting)
			})
			id := r.b.event(verbs.CMConnectRequest).ID
			r.b.qp(id)
			if own != 0 {
				must.Do(t, id.SetAckTimeout(own))
			}
			must.Do(t, id.Accept(&verbs.ConnParam{RetryCount: 3}))
			if a, err := id.QP().Query(); err != nil || a.Timeout != want || a.RetryCnt != 3 {
				t.Errorf("of code %d asked for and %d set came %d, and %d retries (%v); want %d and 3", asked, own, a.Timeout, a.RetryCnt, err, want)
			}
			r.closeAll(ida, id, l)
		}
	}
}

// TestGivenUpRequestsDoNotPileUp: a peer that repeatedly requests and gives up, while no events
// are taken, is refused when the backlog is full.
func TestGivenUpRequestsDoNotPileUp(t *testing.T) {
	const backlog, asked = 4, 20
	r := newRig(t, false)
	l := r.b.listen(backlog)
	ch := r.b.ch.(*cmChannel)
	refused := 0
	for range asked {
		id := r.a.resolve(l.LocalAddr())
		must.Do(t, id.Connect(nil))
		d := r.p.plugged()[1]
		before := d.cm.machine.Stats().Received
		r.until("the request arrives", func() bool { return d.cm.machine.Stats().Received > before })
		for r.fab.Step() {
		}
		for ev, ok := r.a.take(); ok; ev, ok = r.a.take() {
			if ev.Type != verbs.CMRejected || ev.Status != int(cm.RejNoResources) {
				t.Fatalf("the asker got %v with status %d, want REJECTED for want of resources", ev.Type, ev.Status)
			}
			refused++
		}
		must.Do(t, id.Close()) // gives up, and informs the listener's device
		for r.fab.Step() {
		}
	}
	if refused != asked-backlog {
		t.Errorf("%d of %d requests were turned away with a backlog of %d", refused, asked, backlog)
	}
	if n, ids := ch.pending(), len(l.(*cmID).children); n != 2*backlog || ids != backlog {
		t.Errorf("%d events of %d requests are queued, want %d of %d", n, ids, 2*backlog, backlog)
	}
	// Taking the events makes room again.
	r.b.drain()
	id := r.a.resolve(l.LocalAddr())
	must.Do(t, id.Connect(nil))
	if ev := r.b.event(verbs.CMConnectRequest); ev.ListenID != l {
		t.Errorf("a request of another listener: %v", ev.ListenID)
	} else {
		must.Do(t, ev.ID.Close())
	}
	r.closeAll(id, l)
}

// TestRequestsOfTheOtherPortSpace: a SIDR request to a listener for connections, and a connection
// request to one for datagrams, are refused as having no listener: the named service is of the
// other kind. (Accept of the former once read a REQ that did not exist.)
func TestRequestsOfTheOtherPortSpace(t *testing.T) {
	r := newRig(t, false)
	tcp, udp := r.b.listen(0), r.b.udp()
	must.Do(t, udp.Listen(0))
	a, b := r.p.plugged()[0], r.p.plugged()[1]
	var got cm.Message
	a.onMAD = func(_ time.Duration, _ wire.Path, mad []byte) {
		m := must.Get(cm.Parse(mad))(t)
		got = m
	}
	service := func(ps verbs.PortSpace, id verbs.CMID) uint64 { return cm.ServiceID(ps, id.LocalAddr().Port()) }
	question := &cm.SIDRREQ{RequestID: 9, ServiceID: service(verbs.PSTCP, tcp)}
	request := &cm.REQ{LocalID: 9, QPN: 9, PathMTU: 5, ServiceID: service(verbs.PSUDP, udp)}
	head := cm.ConnHeader{SrcPort: 9, Src: r.a.addr, Dst: r.b.addr}
	head.Put(&request.Private)
	copy(question.Private[:], request.Private[:cm.ConnHeaderSize])
	for _, m := range []cm.Message{question, request} {
		var mad cm.MAD
		must.Do(t, m.Put(&mad))
		b.exclusive(func() { b.onMAD(b.p.Now(), wire.To(a.gid), mad[:]) })
		for r.fab.Step() {
		}
		if ev, ok := r.b.take(); ok {
			t.Errorf("a listener heard of %v: %v", m.Attr(), ev.Type)
			_ = ev.ID.Accept(&verbs.ConnParam{QPNum: 5})
			must.Do(t, ev.ID.Close())
		}
		switch m := got.(type) {
		case *cm.SIDRREP:
			if m.Status != cm.SIDRUnsupported {
				t.Errorf("the question was answered with %d, want that nobody listens", m.Status)
			}
		case *cm.REJ:
			if m.Reason != cm.RejInvalidServiceID {
				t.Errorf("the request was refused for %d, want the service", m.Reason)
			}
		default:
			t.Errorf("%v was answered with %v", m, got)
		}
		got = nil
	}
	r.closeAll(tcp, udp)
}

// Rule (RFC 3168): the packets of the accepting end have the traffic class of the request, without its ECN bits. (The
// bug: a peer could have this end report congestion in the name of the network.)
func TestARequestDoesNotChooseTheECNBits(t *testing.T) {
	const class = 0xb8
	r := newRig(t, false)
	l := r.b.listen(0)
	ida := r.a.resolve(l.LocalAddr()).(*cmID)
	ida.tos = class | verbs.ECNMask // as a hostile peer
	must.Do(t, ida.Connect(nil))
	id := r.b.event(verbs.CMConnectRequest).ID
	r.b.qp(id)
	must.Do(t, id.Accept(nil))
	if got := must.Get(id.QP().Query())(t).AH.TrafficClass; got != class {
		t.Errorf("the accepting end has the traffic class %#02x, want %#02x", got, class)
	}
	r.a.drain()
	r.b.drain()
	r.closeAll(ida, id, l)
}
