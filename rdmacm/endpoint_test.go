package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// Rule (rdma_create_ep, rdma_get_request, semantics 16, 17 and 20): endpoints are synchronous. A receive
// may be posted as soon as the queue pair exists, before the connection. This is the way of rdma_client
// and rdma_server.
func TestEndpointsExchangeMessages(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	c := r.dialer(at, attr())
	cm, answer := r.memory(c, 32, (*ID).RegMsgs), make(chan error, 1)
	must.Do(t, c.PostRecv(1, cm.Bytes()[:16], cm))
	go func() { answer <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	if ev := s.Event(); ev == nil || ev.Type != verbs.CMConnectRequest {
		t.Errorf("the identifier of GetRequest has event %v, want the CONNECT_REQUEST", ev)
	}
	sm := r.memory(s, 32, (*ID).RegMsgs)
	must.Do(t, s.PostRecv(2, sm.Bytes()[:16], sm))
	must.Do(t, s.Accept(r.ctx, nil))
	must.Do(t, <-answer)

	copy(cm.Bytes()[16:], "from the client!")
	must.Do(t, c.PostSend(3, cm.Bytes()[16:], cm, verbs.SendSignaled))
	r.sent(c, 3)
	if wc := r.received(s, 2); wc.ByteLen != 16 || string(sm.Bytes()[:16]) != "from the client!" {
		t.Errorf("the server received %d bytes: %q", wc.ByteLen, sm.Bytes()[:16])
	}
	must.Do(t, s.PostSend(4, []byte("from the server"), nil, verbs.SendSignaled|verbs.SendInline))
	r.sent(s, 4)
	if wc := r.received(c, 1); wc.ByteLen != 15 || string(cm.Bytes()[:15]) != "from the server" {
		t.Errorf("the client received %d bytes: %q", wc.ByteLen, cm.Bytes()[:15])
	}
	done := make(chan error, 1)
	go func() { done <- s.Disconnect(r.ctx) }()
	must.Do(t, c.Disconnect(r.ctx))
	must.Do(t, <-done)
}

// Rule (semantics 18): the private data of the request arrives with CONNECT_REQUEST, that of the
// answer with ESTABLISHED, and that of a refusal with REJECTED.
func TestPrivateDataGoesBothWays(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	param := func(data string) *verbs.ConnParam {
		return &verbs.ConnParam{PrivateData: []byte(data), ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}
	}
	has := func(what string, data []byte, want string) {
		t.Helper()
		if len(data) < len(want) || string(data[:len(want)]) != want {
			t.Errorf("%s has private data %q, want %q and zeros", what, data, want)
		}
	}
	c, answer := r.dialer(at, attr()), make(chan error, 1)
	go func() { answer <- c.Connect(r.ctx, param("ask")) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	has("the request", s.Event().Conn.PrivateData, "ask")
	must.Do(t, s.Accept(r.ctx, param("yes")))
	must.Do(t, <-answer)
	has("the answer", c.Event().Conn.PrivateData, "yes")

	c = r.dialer(at, attr())
	go func() { answer <- c.Connect(r.ctx, nil) }()
	s = r.owns(must.Get(l.GetRequest(r.ctx))(t))
	must.Do(t, s.Reject([]byte("no")))
	err := <-answer
	rejected, ok := errors.AsType[*RejectedError](err)
	if !ok || !errors.Is(err, syscall.ECONNREFUSED) || rejected.Reason != verbs.RejConsumer {
		t.Fatalf("a rejected Connect returned %v, want ECONNREFUSED and reason %d", err, verbs.RejConsumer)
	}
	has("the refusal", rejected.PrivateData, "no")
}

// Rule (rdma_get_local_addr, rdma_get_peer_addr): both ends know both addresses.
func TestEndpointsKnowTheirAddresses(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	if c.LocalAddr() != s.PeerAddr() || c.PeerAddr() != s.LocalAddr() || c.LocalAddr().Addr() != r.at[0].Addr() || s.LocalAddr().Addr() != r.at[1].Addr() {
		t.Errorf("the ends have the addresses %v, %v and %v, %v", c.LocalAddr(), c.PeerAddr(), s.LocalAddr(), s.PeerAddr())
	}
}

// Rule (rdma_create_event_channel, rdma_get_cm_event, rdma_ack_cm_event): an identifier with a channel
// does not wait, and reports each step to the channel. Destroy waits until the events are acknowledged.
func TestIdentifiersReportToTheirChannel(t *testing.T) {
	r := newRig(t)
	var chs [2]*EventChannel
	for i := range chs {
		chs[i] = must.Get(r.lib[i].CreateEventChannel())(t)
		t.Cleanup(func() { must.Do(t, chs[i].Destroy()) })
	}
	next := func(end int, want verbs.CMEventType) *Event {
		t.Helper()
		ev := must.Get(chs[end].GetEvent(r.ctx))(t)
		if ev.Type != want || ev.Status != 0 {
			t.Fatalf("event %v with status %d, want %v", ev.Type, ev.Status, want)
		}
		return ev
	}
	l := r.owns(must.Get(r.lib[1].CreateID(chs[1], "the listener's", verbs.PSTCP))(t))
	must.Do(t, l.BindAddr(r.at[1]))
	must.Do(t, l.Listen(4))
	c := r.owns(must.Get(r.lib[0].CreateID(chs[0], nil, verbs.PSTCP))(t))
	must.Do(t, c.ResolveAddr(r.ctx, r.at[0], l.LocalAddr(), patience))
	next(0, verbs.CMAddrResolved).Ack()
	must.Do(t, c.ResolveRoute(r.ctx, patience))
	next(0, verbs.CMRouteResolved).Ack()
	must.Do(t, c.CreateQP(nil, attr()))
	must.Do(t, c.Connect(r.ctx, nil))
	ev := next(1, verbs.CMConnectRequest)
	s := r.owns(ev.ID)
	if ev.ListenID != l || s.Context != "the listener's" {
		t.Errorf("the request came to %v with context %v, want the listener's", ev.ListenID, s.Context)
	}
	must.Do(t, s.CreateQP(nil, attr()))
	must.Do(t, s.Accept(r.ctx, nil))
	ev.Ack()
	established := next(0, verbs.CMEstablished) // first: GetEvent sends what the listener waits for
	next(1, verbs.CMEstablished).Ack()
	short, cancel := context.WithCancel(r.ctx)
	cancel()
	if err := c.Destroy(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Destroy with an event that is not acknowledged returned %v, want it to wait for its context", err)
	}
	established.Ack()
	must.Do(t, c.Disconnect(r.ctx))
	next(1, verbs.CMDisconnected).Ack()
	must.Do(t, s.Disconnect(r.ctx))
	next(0, verbs.CMDisconnected).Ack()
	if err := chs[0].Destroy(); !errors.Is(err, verbs.ErrBusy) || !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Destroy of a channel with an identifier returned %v, want EBUSY", err)
	}
}

// Rule (rdma_migrate_id): after MigrateID an identifier reports to the new channel; without a channel
// it is synchronous.
func TestAnIdentifierMovesToAChannelAndBack(t *testing.T) {
	r := newRig(t)
	_, at := r.listener(attr())
	c := r.dialer(at, nil)
	ch := must.Get(r.lib[0].CreateEventChannel())(t)
	defer func() { must.Do(t, ch.Destroy()) }()
	must.Do(t, c.MigrateID(r.ctx, ch))
	must.Do(t, c.WriteEvent(verbs.CMUser, 5, "hello"))
	ev := must.Get(ch.GetEvent(r.ctx))(t)
	if ev.Type != verbs.CMUser || ev.ID != c || ev.Status != 5 || ev.Arg != "hello" {
		t.Errorf("event %+v, want the USER event of WriteEvent", ev)
	}
	if _, err := c.GetRequest(r.ctx); !errors.Is(err, ErrAsync) {
		t.Errorf("GetRequest of an identifier with a channel returned %v, want ErrAsync", err)
	}
	ev.Ack()
	must.Do(t, c.MigrateID(r.ctx, nil))
	if c.Channel() != nil {
		t.Error("after MigrateID(nil) the identifier has a channel, want it to be synchronous")
	}
}

// Rule (rdma_get_cm_event): GetEvent ends with its context, and when the channel is destroyed.
func TestGetEventEnds(t *testing.T) {
	r := newRig(t)
	ch := must.Get(r.lib[0].CreateEventChannel())(t)
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan error, 2)
	for _, ctx := range []context.Context{ctx, r.ctx} {
		go func() { _, err := ch.GetEvent(ctx); done <- err }()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("GetEvent whose context ended returned %v", err)
	}
	must.Do(t, ch.Destroy())
	if err := <-done; !errors.Is(err, os.ErrClosed) || !errors.Is(err, syscall.EBADF) {
		t.Errorf("GetEvent of a destroyed channel returned %v, want EBADF", err)
	}
}

// Rule (rdma_create_qp, rdma_destroy_qp): a protection domain of the program's own can be closed as soon as the queue
// pair in it is destroyed. CreateEndpoint writes the granted capacities.
func TestAProtectionDomainOfTheProgram(t *testing.T) {
	r := newRig(t)
	_, at := r.listener(nil)
	first := r.dialer(at, nil)
	m := must.Get(verbs.AllocMemory(8))(t)
	defer func() { must.Do(t, m.Close()) }()
	for range 20 {
		pd := must.Get(must.Get(first.Device())(t).Context().AllocPD())(t)
		a := &QPInitAttr{Cap: verbs.QPCap{MaxRecvWR: 1}}
		c := must.Get(r.lib[0].CreateEndpoint(r.ctx, &AddrInfo{Src: r.at[0], Dst: at, PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}, pd, a))(t)
		if a.Cap.MaxSendWR != 1 || a.Cap.MaxSendSGE != 1 {
			t.Errorf("granted %+v, want one send with one element", a.Cap)
		}
		mr := must.Get(RegMR(pd, m.Bytes()[:8], verbs.AccessLocalWrite))(t)
		must.Do(t, c.PostRecv(1, mr.Bytes(), mr))
		must.Do(t, c.DestroyQP())
		must.Do(t, mr.Dereg())
		must.Do(t, pd.Close())
		must.Do(t, c.Destroy(r.ctx))
	}
}

// Rule (rdma_getaddrinfo): names, services and hints are resolved as in C.
func TestGetAddrInfo(t *testing.T) {
	ctx := testContext(t)
	for what, c := range map[string]struct {
		node, service string
		hints         *AddrInfo
		want          AddrInfo
		err           error
	}{
		"an address": {node: "10.0.0.1", service: "7471",
			want: AddrInfo{Dst: netip.MustParseAddrPort("10.0.0.1:7471"), PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}},
		"IPv6": {node: "fe80::1", service: "1",
			want: AddrInfo{Dst: netip.MustParseAddrPort("[fe80::1]:1"), PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}},
		"a listener": {service: "7471", hints: &AddrInfo{Flags: AIPassive},
			want: AddrInfo{Flags: AIPassive, Src: netip.MustParseAddrPort("0.0.0.0:7471"), PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}},
		"datagrams by port space": {node: "10.0.0.1", service: "2", hints: &AddrInfo{PortSpace: verbs.PSUDP},
			want: AddrInfo{Dst: netip.MustParseAddrPort("10.0.0.1:2"), PortSpace: verbs.PSUDP, QPType: verbs.QPTUD}},
		"datagrams by type": {node: "10.0.0.1", service: "2", hints: &AddrInfo{QPType: verbs.QPTUD},
			want: AddrInfo{Dst: netip.MustParseAddrPort("10.0.0.1:2"), PortSpace: verbs.PSUDP, QPType: verbs.QPTUD}},
		"private data": {node: "10.0.0.1", hints: &AddrInfo{Connect: []byte("x")},
			want: AddrInfo{Dst: netip.MustParseAddrPort("10.0.0.1:0"), PortSpace: verbs.PSTCP, QPType: verbs.QPTRC, Connect: []byte("x")}},
		"IPv4 by family": {node: "10.0.0.1", hints: &AddrInfo{Family: AFInet},
			want: AddrInfo{Family: AFInet, Dst: netip.MustParseAddrPort("10.0.0.1:0"), PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}},
		"a listener of IPv6": {service: "1", hints: &AddrInfo{Flags: AIPassive, Family: AFInet6},
			want: AddrInfo{Flags: AIPassive, Family: AFInet6, Src: netip.MustParseAddrPort("[::]:1"), PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}},
		"a GID": {node: "fe80::2", service: "7174", hints: &AddrInfo{Flags: AIFamily | AINumericHost, Family: AFIB, PortSpace: verbs.PSUDP},
			want: AddrInfo{Flags: AIFamily | AINumericHost, Family: AFIB, PortSpace: verbs.PSUDP, QPType: verbs.QPTUD, DstIB: verbs.IBAddr{
				PKey: 0xffff, GID: verbs.GIDFromAddr(netip.MustParseAddr("fe80::2")), SID: 0x1111c06, SIDMask: verbs.AllServiceBits}}},
		"a listener with any GID": {hints: &AddrInfo{Flags: AIPassive | AIFamily | AINumericHost, Family: AFIB},
			want: AddrInfo{Flags: AIPassive | AIFamily | AINumericHost, Family: AFIB, PortSpace: verbs.PSTCP, QPType: verbs.QPTRC, SrcIB: verbs.IBAddr{
				PKey: 0xffff, SID: 0x1060000, SIDMask: verbs.PortSpaceBits}}},
		"AFIB without its flags": {node: "10.0.0.1", hints: &AddrInfo{Family: AFIB},
			want: AddrInfo{Family: AFInet, Dst: netip.MustParseAddrPort("10.0.0.1:0"), PortSpace: verbs.PSTCP, QPType: verbs.QPTRC}},
		"XRC": {node: "10.0.0.1", hints: &AddrInfo{QPType: verbs.QPTXRCSend},
			want: AddrInfo{Dst: netip.MustParseAddrPort("10.0.0.1:0"), PortSpace: verbs.PSIB, QPType: verbs.QPTXRCSend}},
		"XRC in port space TCP":                {node: "10.0.0.1", hints: &AddrInfo{QPType: verbs.QPTXRCSend, PortSpace: verbs.PSTCP}, err: syscall.EINVAL},
		"an address of the other family":       {node: "10.0.0.1", hints: &AddrInfo{Flags: AINumericHost, Family: AFInet6}, err: syscall.EINVAL},
		"a name where addresses are asked for": {node: "localhost", hints: &AddrInfo{Flags: AINumericHost}, err: syscall.EINVAL},
		"no node":                              {service: "1", err: syscall.EINVAL},
		"types that contradict each other":     {node: "10.0.0.1", hints: &AddrInfo{QPType: verbs.QPTUD, PortSpace: verbs.PSTCP}, err: syscall.EINVAL},
		"no service of that name":              {node: "10.0.0.1", service: "nosuchservice", err: syscall.EINVAL},
	} {
		got, err := GetAddrInfo(ctx, c.node, c.service, c.hints)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: error %v, want %v", what, err, c.err)
			continue
		}
		if err != nil {
			continue
		}
		c.want.CanonName = c.node
		if c.want.Family == 0 {
			c.want.Family = got[0].Family
		}
		if g := got[0]; len(got) != 1 || g.Family != c.want.Family || g.SrcIB != c.want.SrcIB || g.DstIB != c.want.DstIB || g.Dst != c.want.Dst || g.Src != c.want.Src || g.PortSpace != c.want.PortSpace || g.QPType != c.want.QPType ||
			g.Flags != c.want.Flags || string(g.Connect) != string(c.want.Connect) || g.CanonName != c.want.CanonName {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// Rule (rdma_resolve_addrinfo, rdma_query_addrinfo): the resolver runs while the program goes on; the event
// says that the results are there, or why not. A synchronous identifier waits.
func TestAddrInfoIsResolvedWithAnEvent(t *testing.T) {
	r := newRig(t)
	ch := must.Get(r.lib[0].CreateEventChannel())(t)
	defer func() { must.Do(t, ch.Destroy()) }()
	id := must.Get(r.lib[0].CreateID(ch, nil, verbs.PSTCP))(t)
	if _, err := id.QueryAddrInfo(); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("QueryAddrInfo before the event returned %v, want ENOENT", err)
	}
	must.Do(t, id.ResolveAddrInfo(r.ctx, "10.0.0.1", "7471", nil))
	ev := must.Get(ch.GetEvent(r.ctx))(t)
	infos := must.Get(id.QueryAddrInfo())(t)
	if ev.Type != verbs.CMAddrInfoResolved || ev.ID != id || len(infos) != 1 || infos[0].Dst != netip.MustParseAddrPort("10.0.0.1:7471") {
		t.Errorf("event %v, results %+v", ev.Type, infos)
	}
	ev.Ack()
	must.Do(t, id.ResolveAddrInfo(r.ctx, "localhost", "7471", &AddrInfo{Flags: AINumericHost}))
	must.Do(t, id.MigrateID(r.ctx, nil)) // the event comes along
	if ev = must.Get(id.channel().GetEvent(r.ctx))(t); ev.Type != verbs.CMAddrInfoError || !errors.Is(ev.Err(), syscall.EINVAL) {
		t.Errorf("a name where addresses are asked for: event %v, error %v", ev.Type, ev.Err())
	}
	ev.Ack()
	must.Do(t, id.ResolveAddrInfo(r.ctx, "10.0.0.2", "", nil))
	if infos = must.Get(id.QueryAddrInfo())(t); len(infos) != 1 || infos[0].Dst.Addr() != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("results %+v", infos)
	}
	if err := id.ResolveAddrInfo(r.ctx, "10.0.0.2", "", &AddrInfo{PortSpace: verbs.PSUDP}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("hints of another port space: error %v, want EINVAL", err)
	}
	must.Do(t, id.Destroy(r.ctx))
	if err := id.WriteEvent(verbs.CMUser, 0, nil); !errors.Is(err, syscall.EBADF) {
		t.Errorf("WriteEvent on a destroyed identifier returned %v, want EBADF", err)
	}
}

// Rule (rdma_create_ep): addresses of IPv6 work as those of IPv4 do, from GetAddrInfo on.
func TestEndpointsOfIPv6(t *testing.T) {
	addrs := [2]string{"fd00::1", "fd00::2"}
	p := must.Get(soft.New(soft.Config{Devices: []soft.DeviceConfig{{Name: "six0", Addr: netip.MustParseAddr(addrs[0])}, {Name: "six1", Addr: netip.MustParseAddr(addrs[1])}}}))(t)
	lib := must.Get(Open(Config{Provider: p}))(t)
	t.Cleanup(func() { must.Do(t, lib.Close()) })
	r := &rig{t: t, ctx: testContext(t), lib: [2]*Library{lib, lib}}
	passive := must.Get(GetAddrInfo(r.ctx, addrs[1], "7471", &AddrInfo{Flags: AIPassive | AINumericHost}))(t)
	l := r.owns(must.Get(lib.CreateEndpoint(r.ctx, &passive[0], nil, attr()))(t))
	must.Do(t, l.Listen(0))
	active := must.Get(GetAddrInfo(r.ctx, addrs[1], "7471", &AddrInfo{Src: netip.AddrPortFrom(netip.MustParseAddr(addrs[0]), 0)}))(t)
	c := r.owns(must.Get(lib.CreateEndpoint(r.ctx, &active[0], nil, attr()))(t))
	answer := make(chan error, 1)
	go func() { answer <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	must.Do(t, s.Accept(r.ctx, nil))
	must.Do(t, <-answer)
	in := r.memory(s, 8, (*ID).RegMsgs)
	must.Do(t, s.PostRecv(1, in.Bytes(), in))
	must.Do(t, c.PostSend(2, []byte("six"), nil, verbs.SendSignaled))
	r.sent(c, 2)
	r.received(s, 1)
	if c.PeerAddr() != netip.MustParseAddrPort("[fd00::2]:7471") || s.PeerAddr().Addr() != netip.MustParseAddr(addrs[0]) {
		t.Errorf("the ends have the peers %v and %v", c.PeerAddr(), s.PeerAddr())
	}
}
