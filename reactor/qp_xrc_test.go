package reactor_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a message of an XRC_SEND queue takes a receive of the shared receive queue that it names, through the
// XRC_RECV queue pair that it is connected to; the completion names that queue pair.
func TestXRCMessagesNameTheirReceives(t *testing.T) {
	const receives, depth = 2, 4
	at, to := home().open(t, 0), home().open(t, 1)
	if must.Get(at.QueryDevice())(t).Caps&verbs.CapXRC == 0 {
		must.Do(t, at.Close())
		must.Do(t, to.Close())
		t.Skip("the device has no XRC")
	}
	a := newEnd(t, at, reactor.Config{}, reactor.QueueConfig{Type: verbs.QPTXRCSend, RecvDepth: -1}, nil)
	b := newEnd(t, to, reactor.Config{}, reactor.QueueConfig{}, nil)
	defer b.close(t)
	x := must.Get(to.OpenXRCD(-1, 0))(t)
	defer func() { must.Do(t, x.Close()) }()
	target := must.Get(x.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTXRCRecv}))(t)
	defer func() { must.Do(t, target.Close()) }()
	var shared [receives]*reactor.SharedRecv
	got := make(chan int, receives)
	num := make(chan uint32, receives)
	for i := range shared {
		s := must.Get(b.r.PrepareShared(b.pd, depth, 1))(t)
		b.do(t, func() {
			must.Do(t, s.Admit())
			s.Bind(must.Get(b.pd.CreateSRQ(s.AttrXRC(x)))(t))
		})
		defer b.do(t, func() {
			must.Do(t, s.SRQ().Close())
			must.Do(t, s.Release(errOver))
		})
		_, sge := b.bytes(64*i, 64)
		must.Do(t, s.PostRecv(&reactor.Recv{Sink: called(func(c reactor.Completion, err error) {
			if err == nil {
				got <- i
				num <- c.QPNum
			}
		})}, []verbs.SGE{sge}, reactor.Block))
		shared[i] = s
	}
	defer a.close(t)
	b.do(t, func() { // so that the receives are posted
		modify(t, target, &verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: endAccess}, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags)
		modify(t, target, xrcWay(t, b, a, a.q.QP()), toRTR|verbs.QPMMaxDestRdAtomic|verbs.QPMMinRNRTimer)
		modify(t, target, &verbs.QPAttr{State: verbs.QPSRTS, SQPSN: 7, Timeout: ackTimeout}, verbs.QPMState|verbs.QPMTimeout|verbs.QPMSQPSN)
	})
	a.do(t, func() {
		modify(t, a.q.QP(), xrcWay(t, a, b, target), toRTR)
		modify(t, a.q.QP(), &verbs.QPAttr{State: verbs.QPSRTS, SQPSN: 7, Timeout: ackTimeout, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 16},
			verbs.QPMState|verbs.QPMTimeout|verbs.QPMRetryCnt|verbs.QPMRNRRetry|verbs.QPMSQPSN|verbs.QPMMaxQPRdAtomic)
	})
	for _, i := range []int{1, 0} {
		f, err := a.q.Submit(bounded(t), &reactor.Send{Opcode: verbs.WRSend, RemoteSRQ: shared[i].SRQ().Num()}, &reactor.Payload{Inline: []byte("to it")}, reactor.Block)
		await(t, f, err)
		if at := comes(t, "the message", got); at != i {
			t.Errorf("a message to shared receive queue %d took a receive of %d", i, at)
		}
		if n := <-num; n != target.Num() {
			t.Errorf("the receive completed for queue pair 0x%x, want 0x%x", n, target.Num())
		}
		if b, _ := b.bytes(64*i, 5); string(b) != "to it" {
			t.Errorf("the message is %q", b)
		}
	}
}

const toRTR = verbs.QPMState | verbs.QPMAV | verbs.QPMPathMTU | verbs.QPMDestQPN | verbs.QPMRQPSN

// xrcWay returns the attributes with which a queue pair of e goes to RTR, for the peer's queue pair.
func xrcWay(t *testing.T, e, peer *end, to verbs.QP) *verbs.QPAttr {
	return &verbs.QPAttr{
		State: verbs.QPSRTR, PathMTU: mtuOf(t, e.ctx, peer.ctx), DestQPN: to.Num(), RQPSN: 7, MaxDestRdAtomic: 16, MinRNRTimer: 12,
		AH: verbs.AHAttr{DGID: gidOf(t, peer.ctx).GID, SGIDIndex: uint8(gidOf(t, e.ctx).Index), HopLimit: 64, Port: 1},
	}
}

func modify(t *testing.T, q verbs.QP, a *verbs.QPAttr, m verbs.QPAttrMask) {
	t.Helper()
	must.Do(t, q.Modify(a, m))
}
