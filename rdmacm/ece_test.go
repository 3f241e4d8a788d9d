package rdmacm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// bare is two identifiers without queue pairs, each with a channel, and the listener.
type bare struct {
	*rig
	ch      [2]*EventChannel
	l, c, s *ID
}

func newBare(t *testing.T) *bare {
	t.Helper()
	b := &bare{rig: newRig(t)}
	for i := range b.ch {
		b.ch[i] = must.Get(b.lib[i].CreateEventChannel())(t)
		t.Cleanup(func() { must.Do(t, b.ch[i].Destroy()) })
	}
	b.l = b.owns(must.Get(b.lib[1].CreateID(b.ch[1], nil, verbs.PSTCP))(t))
	must.Do(t, b.l.BindAddr(b.at[1]))
	must.Do(t, b.l.Listen(0))
	b.c = b.owns(must.Get(b.lib[0].CreateID(b.ch[0], nil, verbs.PSTCP))(t))
	must.Do(t, b.c.ResolveAddr(b.ctx, b.at[0], b.l.LocalAddr(), patience))
	b.next(0, verbs.CMAddrResolved)
	must.Do(t, b.c.ResolveRoute(b.ctx, patience))
	b.next(0, verbs.CMRouteResolved)
	return b
}

// next takes the next event of an end and acknowledges it.
func (b *bare) next(end int, want verbs.CMEventType) *Event {
	b.t.Helper()
	ev := must.Get(b.ch[end].GetEvent(b.ctx))(b.t)
	if ev.Type != want {
		b.t.Fatalf("event %v with status %d, want %v", ev.Type, ev.Status, want)
	}
	ev.Ack()
	return ev
}

// The numbers of queue pairs that the identifiers do not know.
const clientQP, serverQP = 0x4242, 0x2424

// asks sends the request and takes it.
func (b *bare) asks() {
	b.t.Helper()
	must.Do(b.t, b.c.Connect(b.ctx, &verbs.ConnParam{QPNum: clientQP, ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}))
	b.s = b.owns(b.next(1, verbs.CMConnectRequest).ID)
}

func (b *bare) accepts() {
	b.t.Helper()
	must.Do(b.t, b.s.Accept(b.ctx, &verbs.ConnParam{QPNum: serverQP, ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}))
	b.next(0, verbs.CMConnectResponse)
}

// Rule (rdma_set_local_ece, rdma_get_remote_ece): each end gets the options that the other has set for a queue pair of
// the program's own.
func TestECEGoesBothWays(t *testing.T) {
	b := newBare(t)
	asked := verbs.ECE{Vendor: 0xfe02c9, Options: 5}
	must.Do(t, b.c.SetLocalECE(asked))
	b.asks()
	if got := must.Get(b.s.RemoteECE())(t); got != asked {
		t.Errorf("the request brought %+v, want %+v", got, asked)
	}
	must.Do(t, b.s.SetLocalECE(verbs.ECE{Vendor: asked.Vendor, Options: 1}))
	b.accepts()
	if got, want := must.Get(b.c.RemoteECE())(t), (verbs.ECE{Vendor: asked.Vendor, Options: 1}); got != want {
		t.Errorf("the answer brought %+v, want %+v", got, want)
	}
	err := b.s.SetLocalECE(verbs.ECE{})
	if op, ok := errors.AsType[*verbs.OpError](err); !ok || op.Op != "rdma_set_local_ece" || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no vendor: %v, want EINVAL of rdma_set_local_ece", err)
	}
}

// Rule (rdma_reject_ece): the peer gets REJECTED with reason 35 and the private data.
func TestRejectECE(t *testing.T) {
	b := newBare(t)
	b.asks()
	must.Do(t, b.s.RejectECE([]byte("no")))
	ev := b.next(0, verbs.CMRejected)
	rejected, ok := errors.AsType[*RejectedError](ev.Err())
	if !ok || rejected.Reason != verbs.RejVendorOption || string(rejected.PrivateData[:3]) != "no\x00" {
		t.Errorf("REJECTED with %v, want reason 35 and %q", ev.Err(), "no")
	}
}

// Rule (rdma_notify): COMM_EST establishes an accepted connection before the peer's last message came.
func TestNotifyEstablishes(t *testing.T) {
	b := newBare(t)
	b.asks()
	if err := b.s.Notify(verbs.EventCommEst); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Notify before Accept: %v, want EINVAL", err)
	}
	b.accepts()
	must.Do(t, b.s.Notify(verbs.EventCommEst))
	if ev := b.next(1, verbs.CMEstablished); ev.ID != b.s {
		t.Errorf("ESTABLISHED of %v, want %v", ev.ID, b.s)
	}
	if err := b.s.Notify(verbs.EventCommEst); !errors.Is(err, syscall.EISCONN) {
		t.Errorf("Notify of an established connection: %v, want EISCONN", err)
	}
	must.Do(t, b.c.Establish()) // no ESTABLISHED is waited for: the kernel has none for this end (cma.c, cma_rep_recv)
}

// Rule (rdma_init_qp_attr): the attributes lead a queue pair of the program's own to the peer's, and each end receives
// the packet sequence number first that the other sends first.
func TestInitQPAttr(t *testing.T) {
	b := newBare(t)
	if _, _, err := b.c.InitQPAttr(verbs.QPSRTR); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("attributes for RTR before the connection: %v, want EINVAL", err)
	}
	b.asks()
	attrs := map[*ID]map[verbs.QPState]verbs.QPAttr{b.c: {}, b.s: {}}
	take := func(id *ID, from verbs.QPState, states ...verbs.QPState) {
		t.Helper()
		for _, s := range states {
			a, mask, err := id.InitQPAttr(s)
			must.Do(t, err)
			must.Do(t, verbs.CheckTransition(verbs.QPTRC, from, s, mask))
			attrs[id][s], from = a, s
		}
	}
	take(b.s, verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS)
	take(b.c, verbs.QPSReset, verbs.QPSInit)
	b.accepts()
	take(b.c, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS)
	for id, peer := range map[*ID]*ID{b.c: b.s, b.s: b.c} {
		r, s := attrs[id][verbs.QPSRTR], attrs[peer][verbs.QPSRTS]
		if r.RQPSN != s.SQPSN || r.AH.DGID != verbs.GIDFromAddr(id.PeerAddr().Addr()) {
			t.Errorf("%v: receives from 0x%x by %v, the peer sends from 0x%x", id, r.RQPSN, r.AH.DGID, s.SQPSN)
		}
	}
	if c, s := attrs[b.c][verbs.QPSRTR].DestQPN, attrs[b.s][verbs.QPSRTR].DestQPN; c != serverQP || s != clientQP {
		t.Errorf("the destinations are 0x%x and 0x%x, want 0x%x and 0x%x", c, s, serverQP, clientQP)
	}
	must.Do(t, b.c.Establish())
	b.next(1, verbs.CMEstablished)
}

// Rule (rdma_join_multicast_ex): a member that only sends knows the way to the group and sends there, and its own
// queue pair gets nothing; a full member does.
func TestSendOnlyMember(t *testing.T) {
	r := newRig(t)
	group := netip.MustParseAddr("239.7.7.8")
	ids := [3]*ID{r.datagrams(0), r.datagrams(1), r.datagrams(1)} // sender, full member, another that only sends
	for i, flag := range []MCJoinFlag{MCSendOnlyFullMember, MCFullMember, MCSendOnlyFullMember} {
		must.Do(t, ids[i].CreateQP(nil, attr()))
		must.Do(t, ids[i].JoinMulticastEx(r.ctx, group, flag, i+5))
		if ev := ids[i].Event(); ev.Type != verbs.CMMulticastJoin || ev.Arg != i+5 || ev.UD.QPNum != verbs.McastQPN {
			t.Fatalf("the join brought %+v, want MULTICAST_JOIN with context %d", ev, i+5)
		}
	}
	if err := ids[0].JoinMulticastEx(r.ctx, group, 2, nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a membership that does not exist: %v, want EINVAL", err)
	}
	way := ids[0].Event().UD
	ah := must.Get(must.Get(ids[0].Device())(t).PD().CreateAH(&way.AH))(t)
	t.Cleanup(func() { must.Do(t, ah.Close()) })
	t.Cleanup(func() { must.Do(t, ids[0].DestroyQP()) })
	for _, id := range ids[1:] {
		in := r.memory(id, 128, (*ID).RegMsgs)
		must.Do(t, id.PostRecv(1, in.Bytes(), in))
	}
	_, err := ids[0].PostSendList([]SendWR{{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, AH: ah, RemoteQPN: way.QPNum, RemoteQKey: way.QKey}})
	must.Do(t, err)
	r.sent(ids[0], 2)
	r.received(ids[1], 1)
	if wcs := make([]verbs.WC, 1); ids[2].RecvCQ().Poll(wcs) != 0 {
		t.Errorf("a member that only sends got %+v", wcs[0])
	}
	for _, id := range ids {
		must.Do(t, id.LeaveMulticast(group))
	}
}

// Rule (RDMA_OPTION_ID_REUSEADDR): identifiers that reuse addresses share a port, and others do not get it. The option
// is for the time before BindAddr, as AFONLY is.
func TestReusedPort(t *testing.T) {
	r := newRig(t)
	id := func(reuse bool) *ID {
		id := r.owns(must.Get(r.lib[0].CreateID(nil, nil, verbs.PSTCP))(t))
		must.Do(t, id.SetReuseAddr(reuse))
		must.Do(t, id.SetAFOnly(true))
		return id
	}
	one, two := id(true), id(true)
	must.Do(t, one.BindAddr(r.at[0]))
	if err := two.BindAddr(one.LocalAddr()); err != nil {
		t.Errorf("sharing %v: %v", one.LocalAddr(), err)
	}
	if err := id(false).BindAddr(one.LocalAddr()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("without the option: %v, want EADDRINUSE", err)
	}
	if err := one.Listen(0); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening on a shared port: %v, want EADDRINUSE", err)
	}
}
