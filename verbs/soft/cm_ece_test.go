package soft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// ownQP makes a queue pair that no identifier knows.
func (e *cmEnd) ownQP(typ verbs.QPType) *queuePair {
	e.r.t.Helper()
	q := must.Get(e.pd.CreateQP(&verbs.QPInitAttr{
		SendCQ: e.cq, RecvCQ: e.cq, Type: typ, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))(e.r.t)
	return q.(*queuePair)
}

// requested connects a to b for queue pairs of the program's own, and returns both ends of the request.
func (r *cmRig) requested(qpn uint32, before ...func(verbs.CMID)) (l, ida, idb verbs.CMID) {
	r.t.Helper()
	l = r.b.listen(0)
	ida = r.a.route(l.LocalAddr())
	for _, f := range before {
		f(ida)
	}
	must.Do(r.t, ida.Connect(&verbs.ConnParam{QPNum: qpn, ResponderResources: 3, InitiatorDepth: 2, RetryCount: 4, RNRRetryCount: 5}))
	return l, ida, r.b.event(verbs.CMConnectRequest).ID
}

// Rule (rdma_set_local_ece, rdma_get_remote_ece; kernel cm.c): the request brings the options to the listener, and the
// answer its own, for the vendor of the request (librdmacm cma.c, ucma_copy_ece_param_to_kern_rep).
func TestECEGoesBothWays(t *testing.T) {
	r := newRig(t, false)
	asked := verbs.ECE{Vendor: 0xfe02c9, Options: 0x80000005}
	l, ida, idb := r.requested(0x4242, func(id verbs.CMID) { must.Do(t, id.SetLocalECE(asked)) })
	if got := must.Get(idb.RemoteECE())(t); got != asked {
		t.Errorf("the request brought %+v, want %+v", got, asked)
	}
	must.Do(t, idb.SetLocalECE(verbs.ECE{Vendor: 0x1234, Options: 0x40000001}))
	if got := must.Get(ida.RemoteECE())(t); got != (verbs.ECE{}) {
		t.Errorf("before the answer the options are %+v", got)
	}
	must.Do(t, idb.Accept(&verbs.ConnParam{QPNum: 0x2424}))
	r.a.event(verbs.CMConnectResponse)
	if got, want := must.Get(ida.RemoteECE())(t), (verbs.ECE{Vendor: asked.Vendor, Options: 0x40000001}); got != want {
		t.Errorf("the answer brought %+v, want %+v", got, want)
	}
	r.closeAll(ida, idb, l)
}

// Rule (librdmacm cma.c, init_ece): a queue pair of CreateQP offers what its device has, here nothing, and its answer
// accepts nothing. The calls are for queue pairs of the program's own, with a vendor that fits its 24 bits.
func TestECEOfAQueuePairOfCreateQP(t *testing.T) {
	r := newRig(t, false)
	some := verbs.ECE{Vendor: 1, Options: 1}
	l := r.b.listen(0)
	ida := r.a.route(l.LocalAddr())
	must.Do(t, ida.SetLocalECE(some))
	r.a.qp(ida)
	must.Do(t, ida.Connect(nil))
	idb := r.b.event(verbs.CMConnectRequest).ID
	if got := must.Get(idb.RemoteECE())(t); got != (verbs.ECE{}) {
		t.Errorf("a queue pair of CreateQP offered %+v", got)
	}
	udp, closed := r.a.udp(), r.a.id()
	r.closeAll(closed)
	_, withQP := ida.RemoteECE()
	_, udpRemote := udp.RemoteECE()
	for what, err := range map[string]error{
		"SetLocalECE with a queue pair": ida.SetLocalECE(some), "RemoteECE with a queue pair": withQP,
		"SetLocalECE of datagrams": udp.SetLocalECE(some), "RemoteECE of datagrams": udpRemote,
		"no vendor": idb.SetLocalECE(verbs.ECE{Options: 1}), "a vendor of 25 bits": idb.SetLocalECE(verbs.ECE{Vendor: 1 << 24}),
	} {
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	if err := closed.SetLocalECE(some); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("SetLocalECE of a closed identifier: %v, want ErrClosed", err)
	}
	r.closeAll(idb, ida, udp, l)

	l, ida, idb = r.requested(0x4242, func(id verbs.CMID) { must.Do(t, id.SetLocalECE(verbs.ECE{Vendor: 9, Options: 7})) })
	must.Do(t, idb.SetLocalECE(some))
	r.b.qp(idb)
	must.Do(t, idb.Accept(nil))
	r.a.drain()
	r.a.event(verbs.CMConnectResponse)
	if got := must.Get(ida.RemoteECE())(t); got != (verbs.ECE{Vendor: 9}) {
		t.Errorf("a queue pair of CreateQP answered %+v, want the vendor and no options", got)
	}
	r.closeAll(ida, idb, l)
}

// Rule (rdma_reject_ece): the reason is 35, vendor option not supported, and private data goes along.
func TestRejectECE(t *testing.T) {
	r := newRig(t, false)
	l, ida, idb := r.requested(0x4242)
	if err := idb.RejectECE(make([]byte, verbs.MaxPrivateReject+1)); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("too much private data: %v, want ErrInvalid", err)
	}
	must.Do(t, idb.RejectECE([]byte("no")))
	if ev := r.a.event(verbs.CMRejected); ev.Status != 35 || verbs.RejVendorOption != 35 || string(ev.Conn.PrivateData[:3]) != "no\x00" {
		t.Errorf("rejected with status %d and %q, want 35 and %q", ev.Status, ev.Conn.PrivateData[:3], "no")
	}
	r.closeAll(ida, idb, l)
}

// Rule (rdma_notify; kernel cm.c, cm_establish): COMM_EST establishes an accepted connection whose RTU is lost, at
// once and only once. Elsewhere it is refused: EISCONN when it is established.
func TestNotifyEstablishes(t *testing.T) {
	r := newRig(t, false)
	l, ida, idb := r.requested(0x4242)
	refused := func(what string, err error, errno syscall.Errno) {
		t.Helper()
		if !errors.Is(err, verbs.ErrInvalid) || !errors.Is(err, errno) {
			t.Errorf("%s: %v, want ErrInvalid and %v", what, err, errno)
		}
	}
	refused("before Accept", idb.Notify(verbs.EventCommEst), syscall.EINVAL)
	refused("on the active side", ida.Notify(verbs.EventCommEst), syscall.EINVAL)
	must.Do(t, idb.Accept(&verbs.ConnParam{QPNum: 0x2424}))
	r.a.event(verbs.CMConnectResponse)
	r.lose(r.a, r.b, 1, 1) // the RTU
	must.Do(t, ida.Accept(nil))
	r.a.event(verbs.CMEstablished)
	for r.fab.Step() {
	}
	if ev, ok := r.b.take(); ok {
		t.Fatalf("the RTU was not lost: %v", ev.Type)
	}
	refused("another event", idb.Notify(verbs.EventPathMig), syscall.EINVAL)
	must.Do(t, idb.Notify(verbs.EventCommEst))
	if ev, ok := r.b.take(); !ok || ev.Type != verbs.CMEstablished || ev.ID != idb {
		t.Errorf("after Notify %v, %v; want ESTABLISHED", ev.Type, ok)
	}
	refused("twice", idb.Notify(verbs.EventCommEst), syscall.EISCONN)
	must.Do(t, ida.Disconnect()) // both are established
	r.b.event(verbs.CMDisconnected)
	r.closeAll(ida, idb, l)
}

// own moves a queue pair of the program's own to the states that the identifier gives the attributes of.
func (e *cmEnd) own(id verbs.CMID, q verbs.QP, states ...verbs.QPState) {
	e.r.t.Helper()
	for _, s := range states {
		a, mask, err := id.InitQPAttr(s)
		must.Do(e.r.t, err)
		must.Do(e.r.t, q.Modify(&a, mask))
	}
}

// Rule (rdma_init_qp_attr): with the attributes for INIT, RTR and RTS two queue pairs of the program's own are
// connected: before Accept on one end, after CONNECT_RESPONSE on the other. Data goes both ways, with the depths and
// the retries that were agreed.
func TestInitQPAttrConnectsTheProgramsQueuePairs(t *testing.T) {
	r := newRig(t, false)
	qa, qb := r.a.ownQP(verbs.QPTRC), r.b.ownQP(verbs.QPTRC)
	steps := []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS}
	l, ida, idb := r.requested(qa.number, func(id verbs.CMID) {
		r.a.own(id, qa, verbs.QPSInit)
		for _, s := range []verbs.QPState{verbs.QPSRTR, verbs.QPSRTS, verbs.QPSErr} {
			if _, _, err := id.InitQPAttr(s); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("attributes for %v before there is a connection: %v, want ErrInvalid", s, err)
			}
		}
	})
	r.b.own(idb, qb, steps...)
	must.Do(t, idb.Accept(&verbs.ConnParam{QPNum: qb.number, ResponderResources: 2, InitiatorDepth: 1, RNRRetryCount: 6}))
	r.a.event(verbs.CMConnectResponse)
	r.a.own(ida, qa, steps[1:]...)
	must.Do(t, ida.Accept(nil))
	r.a.event(verbs.CMEstablished)
	r.b.event(verbs.CMEstablished)
	a := must.Get(qa.Query())(t)
	if a.MaxRdAtomic != 2 || a.MaxDestRdAtomic != 1 || a.RetryCnt != 4 || a.RNRRetry != 6 || a.Timeout != verbs.DefaultAckTimeout {
		t.Errorf("the asking queue pair has depths %d and %d, retries %d and %d, timeout %d; want 2, 1, 4, 6, %d",
			a.MaxRdAtomic, a.MaxDestRdAtomic, a.RetryCnt, a.RNRRetry, a.Timeout, verbs.DefaultAckTimeout)
	}
	b := must.Get(qb.Query())(t)
	if b.MaxRdAtomic != 3 || b.MaxDestRdAtomic != 2 || b.RetryCnt != maxRetry || b.RNRRetry != 5 {
		t.Errorf("the accepting queue pair has depths %d and %d, retries %d and %d; want the request's 3 and 2, and 7, 5",
			b.MaxRdAtomic, b.MaxDestRdAtomic, b.RetryCnt, b.RNRRetry)
	}
	if got, _, err := idb.InitQPAttr(verbs.QPSRTS); err != nil || got.MaxRdAtomic != 1 {
		t.Errorf("after Accept the depth is %d (%v), want the agreed 1", got.MaxRdAtomic, err)
	}
	wrs, wcs := must.Get(mem.Map(4096, mem.Options{}))(t), must.Get(mem.Map(1<<16, mem.Options{}))(t)
	defer wrs.Unmap()
	defer wcs.Unmap()
	for end, q := range map[*cmEnd]*queuePair{r.a: qa, r.b: qb} {
		e := &peer{w: &world{t: t, fab: r.fab}, qp: q, wrs: wrs, wcs: wcs}
		e.mustPost(e.send(1, verbs.WRRDMAWrite, verbs.SendSignaled)) // of no bytes, so any key is valid
		r.settle()
		if wc := e.poll(end.cq); len(wc) != 1 || wc[0].Status != verbs.WCSuccess {
			t.Errorf("a WRITE of %v completed as %+v", q, wc)
		}
	}
	r.closeAll(ida, idb, l)
	must.Do(t, qa.Close())
	must.Do(t, qb.Close())
}

// Rule (rdma_init_qp_attr): of datagrams there are attributes as soon as there is a device, with the key of the port
// space.
func TestInitQPAttrOfDatagrams(t *testing.T) {
	r := newRig(t, false)
	id, q := r.a.udp(), r.a.ownQP(verbs.QPTUD)
	r.a.own(id, q, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS)
	if a := must.Get(q.Query())(t); a.State != verbs.QPSRTS || a.QKey != verbs.UDPQKey {
		t.Errorf("the queue pair is in %v with key 0x%x", a.State, a.QKey)
	}
	unbound := r.a.id()
	if _, _, err := unbound.InitQPAttr(verbs.QPSInit); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("without a device: %v, want ErrInvalid", err)
	}
	r.closeAll(id, unbound)
	must.Do(t, q.Close())
}

// Rule (rdma_join_multicast_ex, SENDONLY_FULLMEMBER; librdmacm cma.c, ucma_process_join and rdma_leave_multicast): the
// join brings the way to the group, and does not attach the queue pair. Leaving undoes the latest join.
func TestSendOnlyMembersAreNotAttached(t *testing.T) {
	r := newRig(t, false)
	group := netip.MustParseAddr("239.1.1.1")
	id := r.a.udp()
	must.Do(t, r.a.ud(id))
	q := id.QP().(*queuePair)
	attached := func(what string, want int) {
		t.Helper()
		if len(q.groups) != want {
			t.Errorf("%s: attached to %d groups, want %d", what, len(q.groups), want)
		}
	}
	must.Do(t, id.JoinMulticastSendOnly(group, 0x77))
	ev := r.a.event(verbs.CMMulticastJoin)
	if ev.UD.AH.DGID != verbs.GIDFromAddr(group) || ev.UD.QPNum != verbs.McastQPN || ev.UD.QKey != verbs.UDPQKey || ev.UserData != 0x77 {
		t.Errorf("the way to the group is %+v for 0x%x", ev.UD, ev.UserData)
	}
	attached("joined to send", 0)
	must.Do(t, id.LeaveMulticast(group))
	must.Do(t, id.JoinMulticast(group, 0))
	r.a.event(verbs.CMMulticastJoin)
	must.Do(t, id.JoinMulticastSendOnly(group, 0))
	r.a.event(verbs.CMMulticastJoin)
	attached("joined fully too", 1)
	must.Do(t, id.LeaveMulticast(group))
	attached("the last join, to send, left", 1)
	must.Do(t, id.LeaveMulticast(group))
	attached("the full join left", 0)
	if err := id.LeaveMulticast(group); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("leaving once more: %v, want EADDRNOTAVAIL", err)
	}
	tcp := r.a.id()
	if err := tcp.JoinMulticastSendOnly(group, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("port space TCP: %v, want ErrInvalid", err)
	}
	r.closeAll(id, tcp)
}
