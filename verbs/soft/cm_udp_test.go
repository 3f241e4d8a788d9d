package soft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
)

// udp makes an identifier of port space UDP on the end's address.
func (e *cmEnd) udp() verbs.CMID {
	e.r.t.Helper()
	id := must.Get(e.ch.CreateID(verbs.PSUDP, 7))(e.r.t)
	must.Do(e.r.t, id.Bind(netip.AddrPortFrom(e.addr, 0)))
	return id
}

func (e *cmEnd) ud(id verbs.CMID) error {
	return id.CreateQP(e.pd, &verbs.QPInitAttr{
		SendCQ: e.cq, RecvCQ: e.cq, Type: verbs.QPTUD,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
}

// asks resolves dst and sends it a SIDR request.
func (e *cmEnd) asks(dst netip.AddrPort, data string) verbs.CMID {
	e.r.t.Helper()
	id := must.Get(e.ch.CreateID(verbs.PSUDP, 0))(e.r.t)
	must.Do(e.r.t, id.ResolveAddr(netip.AddrPortFrom(e.addr, 0), dst, 0))
	e.event(verbs.CMAddrResolved)
	must.Do(e.r.t, id.ResolveRoute(0))
	e.event(verbs.CMRouteResolved)
	must.Do(e.r.t, id.Connect(&verbs.ConnParam{PrivateData: []byte(data)}))
	return id
}

// TestUDPAnswerWithoutQueuePair: the listener answers with the queue pair of another identifier,
// and closes the request's identifier at once; a repeated request still gets the answer.
func TestUDPAnswerWithoutQueuePair(t *testing.T) {
	inBoth(t, func(t *testing.T, r *cmRig) {
		l := r.b.udp()
		must.Do(t, r.b.ud(l))
		must.Do(t, l.Listen(0))
		id := r.a.asks(l.LocalAddr(), "who")
		q := r.b.event(verbs.CMConnectRequest)
		if q.ListenID != l || string(q.UD.PrivateData[:3]) != "who" || len(q.UD.PrivateData) != verbs.MaxPrivateUDP {
			t.Errorf("the question is %+v", q)
		}
		if err := q.ID.Accept(nil); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("an answer without a queue pair: %v, want ErrInvalid", err)
		}
		if err := q.ID.Accept(&verbs.ConnParam{QPNum: 5, PrivateData: make([]byte, cm.PrivateSIDRREP+1)}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("an answer with too much private data: %v, want ErrInvalid", err)
		}
		r.lose(r.b, r.a, 1, 1)
		must.Do(t, q.ID.Accept(&verbs.ConnParam{QPNum: l.QP().Num(), PrivateData: []byte("me")}))
		must.Do(t, q.ID.Close())
		ev := r.a.event(verbs.CMEstablished)
		if ev.UD.QPNum != l.QP().Num() || ev.UD.QKey != verbs.UDPQKey || ev.UD.AH.DGID.Addr() != r.b.addr || string(ev.UD.PrivateData[:2]) != "me" {
			t.Errorf("the answer is %+v", ev.UD)
		}
		r.closeAll(l, id)
	})
}

// TestUDPWrongCalls: calls that port space UDP does not support are refused; a queue pair must
// fit its port space; the listener's queue pair outlives a failed SIDR request.
func TestUDPWrongCalls(t *testing.T) {
	r := newRig(t, false)
	l := r.b.udp()
	must.Do(t, r.b.ud(l))
	must.Do(t, l.Listen(0))
	tcp := r.b.id()
	must.Do(t, tcp.Bind(netip.AddrPortFrom(r.b.addr, 0)))
	if err := r.b.ud(tcp); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a UD queue pair in port space TCP: %v", err)
	}
	if err := tcp.JoinMulticast(netip.MustParseAddr("239.1.1.1"), 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("joining in port space TCP: %v", err)
	}
	if err := l.Disconnect(); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("disconnecting in port space UDP: %v", err)
	}
	id := r.a.asks(l.LocalAddr(), "")
	must.Do(t, r.b.event(verbs.CMConnectRequest).ID.Close()) // sends a refusal
	if ev := r.a.event(verbs.CMUnreachable); ev.Status != int(cm.SIDRReject) {
		t.Errorf("status %d, want that of a refusal", ev.Status)
	}
	if s := r.state(l); s != verbs.QPSRTS {
		t.Errorf("the listener's queue pair is in %v", s)
	}
	r.closeAll(l, id, tcp)
	r.settle()
}

// TestJoinCounts: a group joined twice is left twice; a member without a queue pair gets the
// address handle attributes too; user data is returned.
func TestJoinCounts(t *testing.T) {
	r := newRig(t, false)
	group := netip.MustParseAddr("239.1.1.1")
	id, bare := r.a.udp(), r.a.udp()
	must.Do(t, r.a.ud(id))
	for _, id := range []verbs.CMID{id, id, bare} {
		must.Do(t, id.JoinMulticast(group, 0x55))
		ev := r.a.event(verbs.CMMulticastJoin)
		if ev.UD.AH.DGID != verbs.GIDFromAddr(group) || ev.UD.QPNum != verbs.McastQPN || ev.UserData != 0x55 {
			t.Errorf("the way to the group is %+v", ev.UD)
		}
	}
	q := id.QP().(*queuePair)
	must.Do(t, id.LeaveMulticast(group))
	if len(q.groups) != 1 {
		t.Error("left at the first of two")
	}
	must.Do(t, id.LeaveMulticast(group))
	if len(q.groups) != 0 {
		t.Error("not left at the second of two")
	}
	if err := id.LeaveMulticast(group); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("leaving a third time: %v, want EADDRNOTAVAIL", err)
	}
	r.closeAll(id, bare)
}

// TestUDPAnswerFromItsOwnQueuePair: an identifier with a queue pair answers with that, whatever
// number the call gives. Afterwards it has ended, and the asking identifier is established. The
// request contains its source port, in its own port space.
func TestUDPAnswerFromItsOwnQueuePair(t *testing.T) {
	r := newRig(t, false)
	l := r.b.udp()
	must.Do(t, r.b.ud(l))
	must.Do(t, l.Listen(0))
	tcp := r.b.id()
	must.Do(t, tcp.Bind(l.LocalAddr())) // another port space: not in use
	id := r.a.asks(l.LocalAddr(), "")
	q := r.b.event(verbs.CMConnectRequest).ID
	if q.PeerAddr() != id.LocalAddr() {
		t.Errorf("asked by %v, the question says %v", id.LocalAddr(), q.PeerAddr())
	}
	must.Do(t, r.b.ud(q))
	must.Do(t, q.Accept(&verbs.ConnParam{QPNum: l.QP().Num()}))
	if ev := r.a.event(verbs.CMEstablished); ev.UD.QPNum != q.QP().Num() {
		t.Errorf("the answer names queue pair 0x%x, want 0x%x", ev.UD.QPNum, q.QP().Num())
	}
	if s, _, _ := id.(*cmID).look(); s != idEstablished {
		t.Errorf("the asker is %v", s)
	}
	if err := q.Accept(nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("answering twice: %v, want ErrInvalid", err)
	}
	if s, _, _ := q.(*cmID).look(); s != idEnded {
		t.Errorf("who answered is %v", s)
	}
	r.closeAll(q, l, id, tcp)
}

// TestUDPQuestionTooLong: private data beyond the documented maximum is refused, even if the
// datagram had room.
func TestUDPQuestionTooLong(t *testing.T) {
	r := newRig(t, false)
	id := r.a.udp()
	must.Do(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(r.b.addr, 9), 0))
	r.a.event(verbs.CMAddrResolved)
	must.Do(t, id.ResolveRoute(0))
	r.a.event(verbs.CMRouteResolved)
	if err := id.Connect(&verbs.ConnParam{PrivateData: make([]byte, verbs.MaxPrivateUDP+1)}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a question with too much private data: %v, want ErrInvalid", err)
	}
	if s, _, _ := id.(*cmID).look(); s != idRouteResolved {
		t.Errorf("a refused call made it %v", s)
	}
	if err := id.JoinMulticast(r.b.addr, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("joining a unicast address: %v, want ErrInvalid", err)
	}
	r.closeAll(id)
}

// TestJoinFails: joining a group for which the device has no room yields MULTICAST_ERROR with the
// errno, and does not join.
func TestJoinFails(t *testing.T) {
	r := newRig(t, false)
	id := r.a.udp()
	must.Do(t, r.a.ud(id))
	r.p.plugged()[0].cfg.Limits.MaxMcastGrp = 0
	group := netip.MustParseAddr("239.1.1.1")
	must.Do(t, id.JoinMulticast(group, 0))
	if ev := r.a.event(verbs.CMMulticastError); ev.Status != -int(syscall.ENOMEM) {
		t.Errorf("status %d, want -ENOMEM", ev.Status)
	}
	if err := id.LeaveMulticast(group); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("leaving what was not joined: %v, want EADDRNOTAVAIL", err)
	}
	r.closeAll(id)
}

// TestUDPQuestionsDoNotPileUp: SIDR requests beyond the backlog are answered at once with "no
// queue pair".
func TestUDPQuestionsDoNotPileUp(t *testing.T) {
	r := newRig(t, false)
	l := r.b.udp()
	must.Do(t, l.Listen(1))
	first, second := r.a.asks(l.LocalAddr(), ""), r.a.asks(l.LocalAddr(), "")
	if ev := r.a.event(verbs.CMUnreachable); ev.ID != second || ev.Status != int(cm.SIDRNoQP) {
		t.Errorf("%v with status %d, want %v with %d", ev.ID, ev.Status, second, cm.SIDRNoQP)
	}
	r.closeAll(first, second, r.b.event(verbs.CMConnectRequest).ID, l)
}
