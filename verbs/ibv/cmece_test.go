//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// requested returns the two ends of a request for a queue pair of the program's own.
func (r *cmRig) requested(qpn uint32, before func(verbs.CMID)) (ida, idb verbs.CMID) {
	r.t.Helper()
	l := r.listener()
	ida = r.routed(l.LocalAddr().Port())
	before(ida)
	must.Do(r.t, ida.Connect(&verbs.ConnParam{QPNum: qpn, ResponderResources: 3, InitiatorDepth: 2, RetryCount: 4}))
	idb = r.event(verbs.CMConnectRequest).ID
	r.t.Cleanup(func() { _ = idb.Close() })
	return ida, idb
}

// Rule (rdma_set_local_ece, rdma_get_remote_ece): the options go to the peer with the request and with the answer,
// which has the vendor of the request.
func TestECEGoesBothWays(t *testing.T) {
	r := newCMRig(t)
	asked := verbs.ECE{Vendor: 0xfe02c9, Options: 0x80000005}
	ida, idb := r.requested(1, func(id verbs.CMID) { must.Do(t, id.SetLocalECE(asked)) })
	if got := must.Get(idb.RemoteECE())(t); got != asked {
		t.Errorf("the request brought %+v, want %+v", got, asked)
	}
	must.Do(t, idb.SetLocalECE(verbs.ECE{Vendor: 0x1234, Options: 0x40000001}))
	must.Do(t, idb.Accept(&verbs.ConnParam{QPNum: 2}))
	r.event(verbs.CMConnectResponse)
	if got, want := must.Get(ida.RemoteECE())(t), (verbs.ECE{Vendor: asked.Vendor, Options: 0x40000001}); got != want {
		t.Errorf("the answer brought %+v, want %+v", got, want)
	}
}

// rcQP makes the queue pair of an identifier.
func (r *cmRig) rcQP(id verbs.CMID) {
	r.t.Helper()
	must.Do(r.t, id.CreateQP(r.pd, &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
}

// Rule (librdmacm cma.c, init_ece, set_local_ece, ucma_process_conn_resp_ece): queue pairs of CreateQP and the
// queue pairs of a program's own agree on options, whichever of them dials: the accepting device takes what it can of
// the offer, and both use that. A peer of another vendor, or without options, gets none.
func TestManagedQueuePairsAgreeOnECE(t *testing.T) {
	const vendor, all = 0x5e, 3 // ND_ECE_VENDOR, ND_ECE_OPTIONS
	agreed := func(who string, id verbs.CMID, want verbs.ECE) {
		t.Helper()
		if got, err := id.QP().QueryECE(); err != nil || got != want {
			t.Errorf("the queue pair of the %s end uses %+v (%v), want %+v", who, got, err, want)
		}
	}
	for name, c := range map[string]struct {
		peer verbs.ECE // of the program's own queue pair; zero for one of CreateQP
		want uint32    // options
	}{
		"both managed":   {verbs.ECE{}, all},
		"a part of them": {verbs.ECE{Vendor: vendor, Options: 0x80000002}, 2},
		"another vendor": {verbs.ECE{Vendor: 0xfe02c9, Options: 1}, 0},
	} {
		t.Run("accepting/"+name, func(t *testing.T) {
			r := newCMRig(t)
			ida, idb := r.requested(1, func(id verbs.CMID) {
				if c.peer == (verbs.ECE{}) {
					r.rcQP(id)
				} else {
					must.Do(t, id.SetLocalECE(c.peer))
				}
			})
			r.rcQP(idb)
			agreed("accepting", idb, verbs.ECE{Vendor: vendor, Options: c.want})
			must.Do(t, idb.Accept(&verbs.ConnParam{}))
			if c.peer == (verbs.ECE{}) {
				r.event(verbs.CMEstablished)
				agreed("dialing", ida, verbs.ECE{Vendor: vendor, Options: c.want})
				return
			}
			r.event(verbs.CMConnectResponse)
			if got, want := must.Get(ida.RemoteECE())(t), (verbs.ECE{Vendor: c.peer.Vendor, Options: c.want}); got != want {
				t.Errorf("the answer brought %+v, want %+v", got, want)
			}
		})
	}
	for name, c := range map[string]struct{ answer, want verbs.ECE }{
		"a part of them": {verbs.ECE{Vendor: vendor, Options: 1}, verbs.ECE{Vendor: vendor, Options: 1}},
		"none":           {verbs.ECE{}, verbs.ECE{Vendor: vendor}},
	} {
		t.Run("dialing/"+name, func(t *testing.T) {
			r := newCMRig(t)
			ida, idb := r.requested(1, r.rcQP)
			if got, want := must.Get(idb.RemoteECE())(t), (verbs.ECE{Vendor: vendor, Options: all}); got != want {
				t.Errorf("the request brought %+v, want %+v", got, want)
			}
			if c.answer.Vendor != 0 {
				must.Do(t, idb.SetLocalECE(c.answer))
			}
			must.Do(t, idb.Accept(&verbs.ConnParam{QPNum: 2}))
			r.event(verbs.CMEstablished)
			agreed("dialing", ida, c.want)
		})
	}
}

// Rule: with a queue pair of CreateQP the calls are refused, and options set before are not sent.
func TestECEOfAQueuePairOfCreateQP(t *testing.T) {
	r := newCMRig(t)
	some := verbs.ECE{Vendor: 1, Options: 1}
	ida, idb := r.requested(1, func(id verbs.CMID) {
		must.Do(t, id.SetLocalECE(some))
		r.rcQP(id)
	})
	if got := must.Get(idb.RemoteECE())(t); got == some {
		t.Errorf("the request brought %+v, want those of the queue pair", got)
	}
	_, remote := ida.RemoteECE()
	for what, err := range map[string]error{
		"SetLocalECE with a queue pair": ida.SetLocalECE(some), "RemoteECE with a queue pair": remote,
		"no vendor": idb.SetLocalECE(verbs.ECE{Options: 1}), "a vendor of 25 bits": idb.SetLocalECE(verbs.ECE{Vendor: 1 << 24}),
	} {
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

// Rule (rdma_reject_ece): the reason is 35.
func TestRejectECE(t *testing.T) {
	r := newCMRig(t)
	_, idb := r.requested(1, func(verbs.CMID) {})
	must.Do(t, idb.RejectECE([]byte("no")))
	if ev := r.event(verbs.CMRejected); ev.Status != verbs.RejVendorOption || string(ev.Conn.PrivateData[:3]) != "no\x00" {
		t.Errorf("rejected with status %d and %q", ev.Status, ev.Conn.PrivateData[:3])
	}
}

// Rule (rdma_notify): COMM_EST establishes an accepted connection before the peer's last message, once; ErrInvalid
// elsewhere, with EISCONN when it is established.
func TestNotifyEstablishes(t *testing.T) {
	r := newCMRig(t)
	ida, idb := r.requested(1, func(verbs.CMID) {})
	refused := func(what string, err error, errno syscall.Errno) {
		t.Helper()
		if !errors.Is(err, verbs.ErrInvalid) || !errors.Is(err, errno) {
			t.Errorf("%s: %v, want ErrInvalid and %v", what, err, errno)
		}
	}
	refused("before Accept", idb.Notify(verbs.EventCommEst), syscall.EINVAL)
	must.Do(t, idb.Accept(&verbs.ConnParam{QPNum: 2}))
	r.event(verbs.CMConnectResponse)
	refused("another event", idb.Notify(verbs.EventPathMig), syscall.EINVAL)
	must.Do(t, idb.Notify(verbs.EventCommEst))
	if ev := r.event(verbs.CMEstablished); ev.ID != idb {
		t.Errorf("ESTABLISHED of %v, want %v", ev.ID, idb)
	}
	refused("twice", idb.Notify(verbs.EventCommEst), syscall.EISCONN)
	must.Do(t, ida.Accept(nil))
	if ev, ok, err := r.ch.GetEvent(); ok || err != nil {
		t.Errorf("a second event %v, %v", ev.Type, err)
	}
}

// Rule (rdma_init_qp_attr): with the attributes for INIT, RTR and RTS two queue pairs of the program's own are connected.
func TestInitQPAttrConnectsTheProgramsQueuePairs(t *testing.T) {
	r := newCMRig(t)
	var qps [2]verbs.QP
	for i := range qps {
		qps[i] = must.Get(r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
		t.Cleanup(func() { must.Do(t, qps[i].Close()) })
	}
	own := func(id verbs.CMID, q verbs.QP, states ...verbs.QPState) {
		t.Helper()
		for _, s := range states {
			a, mask, err := id.InitQPAttr(s)
			must.Do(t, err)
			must.Do(t, q.Modify(&a, mask))
		}
	}
	ida, idb := r.requested(qps[0].Num(), func(id verbs.CMID) {
		own(id, qps[0], verbs.QPSInit)
		for _, s := range []verbs.QPState{verbs.QPSRTR, verbs.QPSErr} {
			if _, _, err := id.InitQPAttr(s); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("attributes for %v before there is a connection: %v, want ErrInvalid", s, err)
			}
		}
	})
	own(idb, qps[1], verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS)
	must.Do(t, idb.Accept(&verbs.ConnParam{QPNum: qps[1].Num(), ResponderResources: 2, InitiatorDepth: 1}))
	r.event(verbs.CMConnectResponse)
	own(ida, qps[0], verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS)
	a := must.Get(qps[0].Query())(t)
	if a.State != verbs.QPSRTS || a.DestQPN != qps[1].Num() || a.RetryCnt != 4 || a.MaxRdAtomic != 2 || a.MaxDestRdAtomic != 1 || a.MinRNRTimer != cmRNRTimer {
		t.Errorf("the asking queue pair is %+v", a)
	}
	if b := must.Get(qps[1].Query())(t); b.State != verbs.QPSRTS || b.DestQPN != qps[0].Num() {
		t.Errorf("the accepting queue pair is %+v", b)
	}
	must.Do(t, ida.Accept(nil))
	r.event(verbs.CMEstablished)
}

// datagrams returns an identifier of port space UDP with a device and a queue pair.
func (r *cmRig) datagrams() *cmID {
	r.t.Helper()
	id := must.Get(r.ch.CreateID(verbs.PSUDP, 0))(r.t)
	r.t.Cleanup(func() { _ = id.Close() })
	must.Do(r.t, id.ResolveAddr(netip.AddrPortFrom(null0, 0), netip.AddrPortFrom(null0, 1), time.Second))
	r.event(verbs.CMAddrResolved)
	must.Do(r.t, id.CreateQP(r.pd, &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTUD,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	return id.(*cmID)
}

// Rule (rdma_init_qp_attr; librdmacm cma.c, ucma_init_ud_qp): a datagram queue pair is moved with the masks of its steps.
func TestInitQPAttrOfDatagrams(t *testing.T) {
	r := newCMRig(t)
	id := r.datagrams()
	for s, want := range map[verbs.QPState]verbs.QPAttrMask{
		verbs.QPSInit: verbs.QPMState | verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMQKey,
		verbs.QPSRTR:  verbs.QPMState, verbs.QPSRTS: verbs.QPMState | verbs.QPMSQPSN,
	} {
		if a, mask, err := id.InitQPAttr(s); err != nil || mask != want || s == verbs.QPSInit && a.QKey != verbs.UDPQKey {
			t.Errorf("for %v: %v with key 0x%x, %v; want %v", s, mask, a.QKey, err, want)
		}
	}
}

// Rule (rdma_join_multicast_ex, SENDONLY_FULLMEMBER): the join brings the way to the group, and does not attach the
// queue pair; a full join does.
func TestSendOnlyMembersAreNotAttached(t *testing.T) {
	r := newCMRig(t)
	id, group := r.datagrams(), netip.MustParseAddr("239.1.1.1")
	must.Do(t, id.JoinMulticastSendOnly(group, 0x77))
	if ev := r.event(verbs.CMMulticastJoin); ev.UD.AH.DGID != verbs.GIDFromAddr(group) || ev.UD.QPNum != verbs.McastQPN || ev.UserData != 0x77 {
		t.Errorf("the way to the group is %+v for 0x%x", ev.UD, ev.UserData)
	}
	if n := len(id.qp.groups.attached); n != 0 {
		t.Errorf("attached to %d groups", n)
	}
	must.Do(t, id.LeaveMulticast(group))
	must.Do(t, id.JoinMulticast(group, 0))
	r.event(verbs.CMMulticastJoin)
	if n := len(id.qp.groups.attached); n != 1 {
		t.Errorf("a full member is attached to %d groups", n)
	}
	must.Do(t, id.LeaveMulticast(group))
}

// Rule (RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY): the options reach the library: two identifiers that reuse
// addresses share a port, and the values are ints.
func TestOptionsReachTheLibrary(t *testing.T) {
	r := newCMRig(t)
	one, two, three := r.id(), r.id(), r.id()
	must.Do(t, one.SetReuseAddr(true))
	must.Do(t, two.SetReuseAddr(true))
	must.Do(t, two.SetAFOnly(true))
	must.Do(t, one.Bind(netip.AddrPortFrom(null0, 0)))
	if err := two.Bind(one.LocalAddr()); err != nil {
		t.Errorf("sharing a port: %v", err)
	}
	must.Do(t, three.SetReuseAddr(true))
	must.Do(t, three.SetReuseAddr(false))
	if err := three.Bind(one.LocalAddr()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("one that does not reuse: %v, want EADDRINUSE", err)
	}
}

// oldCM returns a librdmacm that has the required functions only. Those of channels and identifiers work.
func oldCM(t *testing.T) string {
	works := map[string]bool{"rdma_create_event_channel": true, "rdma_destroy_event_channel": true, "rdma_create_id": true, "rdma_destroy_id": true}
	text := &strings.Builder{}
	text.WriteString("#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include \"vb_rdmacm.h\"\n")
	shim := must.Get(os.ReadFile("shim.h"))(t)
	for _, m := range regexp.MustCompile(`X\(1, "RDMACM_[\d.]+", .*?(rdma_\w+),`).FindAllStringSubmatch(string(shim), -1) {
		if !works[m[1]] {
			text.WriteString("int " + m[1] + "(void) { return 0; }\n")
		}
	}
	text.WriteString(`struct vb_rdma_event_channel *rdma_create_event_channel(void)
{
	struct vb_rdma_event_channel *ch = calloc(1, sizeof *ch);
	ch->fd = open("/dev/null", O_RDONLY);
	return ch;
}
void rdma_destroy_event_channel(struct vb_rdma_event_channel *ch) { close(ch->fd); free(ch); }
int rdma_create_id(struct vb_rdma_event_channel *ch, struct vb_rdma_cm_id **id, void *ctx, int ps)
{
	*id = calloc(1, sizeof **id);
	(*id)->channel = ch;
	(*id)->context = ctx;
	(*id)->ps = ps;
	return 0;
}
int rdma_destroy_id(struct vb_rdma_cm_id *id) { free(id); return 0; }
`)
	return library(t, text.String())
}

// Rule: a librdmacm without the functions of rdma-core 16 and 31 is loaded, and their calls return ErrNotSupported.
func TestOldLibraryWithoutECE(t *testing.T) {
	ch := must.Get(provider(t, Config{RDMACM: oldCM(t)}).CreateCMChannel())(t)
	defer func() { must.Do(t, ch.Close()) }()
	id := must.Get(ch.CreateID(verbs.PSTCP, 0))(t).(*cmID)
	defer func() { must.Do(t, id.Close()) }()
	id.state, id.seen.device = idAsked, "some" // as after a request
	_, remote := id.RemoteECE()
	for call, err := range map[string]error{
		"SetLocalECE": id.SetLocalECE(verbs.ECE{Vendor: 1}), "RemoteECE": remote, "RejectECE": id.RejectECE(nil),
	} {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("%s: %v, want ErrNotSupported", call, err)
		}
	}
	udp := must.Get(ch.CreateID(verbs.PSUDP, 0))(t).(*cmID)
	defer func() { must.Do(t, udp.Close()) }()
	udp.seen.device = "some"
	if err := udp.JoinMulticastSendOnly(netip.MustParseAddr("239.1.1.1"), 0); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("JoinMulticastSendOnly: %v, want ErrNotSupported", err)
	}
}
