package soft

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// typed makes an identifier of port space IB.
func (e *cmEnd) typed(kind verbs.QPType) verbs.CMID {
	e.r.t.Helper()
	return must.Get(e.ch.CreateTypedID(verbs.PSIB, kind, 0))(e.r.t)
}

// Rule (kernel cm.c, cm_format_rep, cm_rep_get_qpn): the answer to a request for XRC names the queue pair in place of the
// EE context, and says that it has a shared receive queue; and this end reads it there.
func TestAnswerForXRCNamesAnEEContext(t *testing.T) {
	r := newRig(t, false)
	l := r.b.typed(verbs.QPTXRCRecv)
	must.Do(t, l.Bind(netip.AddrPortFrom(r.b.addr, 0)))
	must.Do(t, l.Listen(0))
	id := r.a.typed(verbs.QPTXRCSend)
	must.Do(t, id.ResolveAddr(netip.AddrPortFrom(r.a.addr, 0), l.LocalAddr(), time.Second))
	r.a.event(verbs.CMAddrResolved)
	must.Do(t, id.ResolveRoute(time.Second))
	r.a.event(verbs.CMRouteResolved)
	if _, mask, err := id.InitQPAttr(verbs.QPSInit); err != nil || mask != initMask {
		t.Errorf("attributes of INIT: mask 0x%x, error %v", mask, err)
	}
	a := r.p.plugged()[0]
	deliver := a.onMAD
	a.onMAD = func(now time.Duration, src wire.Path, mad []byte) {
		if rep, ok := must.Get(cm.Parse(mad))(t).(*cm.REP); ok {
			if rep.LocalEECN != 0x4242 || !rep.SRQ {
				t.Errorf("the answer has EE context 0x%x, SRQ %v; want 0x4242, true", rep.LocalEECN, rep.SRQ)
			}
			rep.QPN = 0 // as the kernel
			var changed cm.MAD
			must.Do(t, rep.Put(&changed))
			mad = changed[:]
		}
		deliver(now, src, mad)
	}
	must.Do(t, id.Connect(&verbs.ConnParam{QPNum: 0x77}))
	child := r.b.event(verbs.CMConnectRequest).ID
	_, mask, err := child.InitQPAttr(verbs.QPSRTS)
	if want := verbs.QPMState | verbs.QPMTimeout | verbs.QPMSQPSN; err != nil || mask != want {
		t.Errorf("attributes of RTS of XRC_RECV: mask 0x%x, error %v; want 0x%x", mask, err, want)
	}
	must.Do(t, child.Accept(&verbs.ConnParam{QPNum: 0x4242}))
	if ev := r.a.event(verbs.CMConnectResponse); ev.Conn.QPNum != 0x4242 {
		t.Errorf("the answer names queue pair 0x%x, want 0x4242", ev.Conn.QPNum)
	}
	attr, mask, err := id.InitQPAttr(verbs.QPSRTR)
	if attr.DestQPN != 0x4242 || mask&(verbs.QPMMaxDestRdAtomic|verbs.QPMMinRNRTimer) != 0 || err != nil {
		t.Errorf("attributes of RTR of XRC_SEND: queue pair 0x%x, mask 0x%x, error %v", attr.DestQPN, mask, err)
	}
	must.Do(t, id.Accept(nil))
	r.closeAll(id, child, l)
}

// Rule (kernel ucma.c, ucma_get_qp_type): XRC is of port space IB, whose ports are its own.
func TestPortSpaceIB(t *testing.T) {
	r := newRig(t, false)
	for _, ps := range []verbs.PortSpace{verbs.PSTCP, verbs.PSUDP} {
		if _, err := r.a.ch.CreateTypedID(ps, verbs.QPTXRCSend, 0); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("XRC in port space 0x%04x: %v, want ErrInvalid", uint16(ps), err)
		}
	}
	if _, err := r.a.ch.CreateTypedID(verbs.PSIB, verbs.QPTUC, 0); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("UC in port space IB: %v, want ErrInvalid", err)
	}
	tcp, ib := r.a.listen(0), r.a.typed(verbs.QPTRC)
	if err := ib.Bind(tcp.LocalAddr()); err != nil {
		t.Errorf("a port of port space TCP in port space IB: %v", err)
	}
	must.Do(t, ib.Listen(0))
	r.closeAll(tcp, ib)
}
