package soft

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// states are all states of a queue pair.
var states = []verbs.QPState{verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD, verbs.QPSSQE, verbs.QPSErr}

// targets is a device with queue pairs that are made one after the other, and a rogue as their peer.
type targets struct {
	w     *world
	rogue *rogue
	dom   verbs.XRCD
	srq   *sharedQueue // of the XRC_RECV queue pair
	sent  []string     // by the device
}

func newTargets(t *testing.T) *targets {
	fab := fabric.New(fabric.Config{Virtual: true})
	p := must.Get(New(Config{Fabric: fab, Devices: []DeviceConfig{{Name: "a", Addr: netip.MustParseAddr("10.0.0.1")}}}))(t)
	x := &targets{w: &world{t: t, fab: fab, p: p}}
	a := x.w.newPeer("a", options{cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}, cqe: 64, memory: 1 << 16, access: flushGlobal})
	x.w.a = a
	x.rogue = &rogue{to: a.gid, got: func(k *fabric.Packet) {
		var h wire.Header
		_, _ = wire.Parse(k.Header(), &h)
		x.sent = append(x.sent, fmt.Sprint(h.Opcode, uint32(h.PSN), h.Syndrome, k.PayloadLen))
	}}
	x.rogue.port = must.Get(fab.Attach(verbs.GIDFromAddr(rogueAddr), "rogue", x.rogue))(t)
	x.dom = must.Get(a.ctx.OpenXRCD(-1, os.O_CREATE))(t)
	return x
}

// close closes everything. It is no Cleanup: after a panic of the engine it would wait for its token.
func (x *targets) close() {
	t, a := x.w.t, x.w.a
	for _, o := range []verbs.Object{a.qp, x.dom, a.mr, a.scq, a.rcq, a.pd, a.ctx} {
		must.Do(t, o.Close())
	}
	x.rogue.port.Detach()
	for _, m := range []*mem.Arena{a.arena, a.wrs, a.wcs} {
		must.Do(t, m.Unmap())
	}
}

// make makes a queue pair of a type in a state, with one receive where it can have one. The objects are to be closed.
func (x *targets) make(kind verbs.QPType, state verbs.QPState) (*queuePair, []verbs.Object) {
	t, a := x.w.t, x.w.a
	var q *queuePair
	var objects []verbs.Object
	if kind == verbs.QPTXRCRecv {
		s := must.Get(a.pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 1, MaxSGE: 1, XRCD: x.dom, CQ: a.rcq}))(t)
		x.srq = s.(*sharedQueue)
		a.srq, a.srqMR = s, a.mr
		a.recv(1, a.sge(0, 2048))
		a.srq, a.srqMR = nil, nil
		r := must.Get(x.dom.CreateQP(&verbs.QPInitAttr{Type: kind}))(t).(*xrcReceiver)
		q, objects = r.q, []verbs.Object{r, s}
	} else {
		o := must.Get(a.pd.CreateQP(&verbs.QPInitAttr{SendCQ: a.scq, RecvCQ: a.rcq, Type: kind, Cap: a.qp.granted}))(t)
		q, objects = o.(*queuePair), []verbs.Object{o}
	}
	attr := verbs.QPAttr{
		PathMTU: verbs.MTU1024, RQPSN: 100, SQPSN: 100, AccessFlags: flushGlobal, Port: 1, QKey: testQKey, DestQPN: 7,
		MaxRdAtomic: 2, MaxDestRdAtomic: 2, MinRNRTimer: 1, Timeout: 0, RetryCnt: 1, RNRRetry: 1,
	}
	attr.AH.DGID, attr.AH.Port = verbs.GIDFromAddr(rogueAddr), 1
	order := []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS}
	n := min(slices.Index(states, state), len(order))
	for i := range n {
		attr.State = order[i]
		must.Do(t, q.modify(&attr, verbs.QPMState|needs(kind, order[i])))
		if i == 0 && q.xrc == nil && kind != verbs.QPTXRCSend {
			a.recvOn(q, 1, a.sge(0, 2048))
		}
	}
	if state > verbs.QPSRTS {
		x.w.a.ctx.dev.exclusive(func() { q.enter(state) })
	}
	q.resp.established = true
	return q, objects
}

// needs returns the attributes that a transition to s requires.
func needs(kind verbs.QPType, s verbs.QPState) verbs.QPAttrMask {
	rc, rtr := kind == verbs.QPTRC, verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN
	switch {
	case s == verbs.QPSInit && kind == verbs.QPTUD:
		return verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMQKey
	case s == verbs.QPSInit:
		return verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMAccessFlags
	case s == verbs.QPSRTR && kind == verbs.QPTUD:
		return 0
	case s == verbs.QPSRTR && (rc || kind == verbs.QPTXRCRecv):
		return rtr | verbs.QPMMaxDestRdAtomic | verbs.QPMMinRNRTimer
	case s == verbs.QPSRTR:
		return rtr
	case rc || kind == verbs.QPTXRCSend:
		return verbs.QPMTimeout | verbs.QPMRetryCnt | verbs.QPMRNRRetry | verbs.QPMSQPSN | verbs.QPMMaxQPRdAtomic
	case kind == verbs.QPTXRCRecv:
		return verbs.QPMTimeout | verbs.QPMSQPSN
	}
	return verbs.QPMSQPSN
}

// feed sends a packet to a new queue pair and returns everything that it did.
func (x *targets) feed(kind verbs.QPType, state verbs.QPState, op wire.Opcode, quick bool) string {
	t, a := x.w.t, x.w.a
	clear(a.data())
	q, objects := x.make(kind, state)
	if !quick {
		q.fastMax = 0
	}
	x.sent = nil
	x.rogue.send = append(x.rogue.send, func(k *fabric.Packet) {
		h := wire.Header{
			Opcode: op, PKey: wire.DefaultPKey, DestQP: q.number, AckReq: true, PSN: 100, VA: a.at(4096), RKey: a.mr.RKey(), Length: 8,
			QKey: testQKey, SrcQP: 7, FlushPlacement: 1, Syndrome: wire.Ack(wire.CreditInvalid),
		}
		if kind == verbs.QPTXRCRecv {
			h.XRCSRQ = x.srq.Num()
		}
		n := 8
		switch {
		case !op.Valid():
			h.Opcode = wire.RCSendOnly
		case !op.HasPayload():
			n = 0
		case !op.Ends():
			n, h.Length = 1024, 2048
		}
		k.SetHeader(&h)
		k.Hdr[0] = byte(op)
		k.AddCopy([]byte(strings.Repeat("12345678", n/8)))
	})
	x.rogue.port.Kick()
	x.w.settle()
	r := &q.resp
	did := fmt.Sprintf("%v, expects %d, msn %d, kind %d, waits %v, refused %v, requester %d %d, sent %v, memory %x",
		q.current(), r.expected, r.msn, r.kind, r.waiting, r.refused, q.req.acked, q.req.sent, x.sent, xxhash.Sum64(a.data()))
	a.ctx.dev.exclusive(q.enterError)
	x.w.settle()
	for _, wc := range append(a.poll(a.rcq), a.poll(a.scq)...) {
		wc.QPNum = 0 // random
		did += fmt.Sprintf(", completion %+v", wc)
	}
	did += fmt.Sprint(", events ", a.events())
	for _, o := range objects {
		must.Do(t, o.Close())
	}
	return did
}

// Rule: any packet has the same effect on any queue pair, of any type and in any state, whether the fast path is open
// to it or not, and a packet of another service than the queue pair's has none.
func TestEveryPacketToEveryQueuePair(t *testing.T) {
	x := newTargets(t)
	for _, kind := range types {
		for _, state := range states {
			nothing := ""
			for op := 0; op <= 0xff; op++ {
				op := wire.Opcode(op)
				quick, general := x.feed(kind, state, op, true), x.feed(kind, state, op, false)
				if quick != general {
					t.Errorf("%v to %v in %v: the quick way\n%s\nthe general way\n%s", op, kind, state, quick, general)
				}
				if kind == verbs.QPTRC && state == verbs.QPSRTS && (op == wire.RCSendOnly || op == wire.RCWriteOnly) && !strings.Contains(quick, "expects 16777317,") {
					t.Errorf("%v to %v in %v was not executed: %s", op, kind, state, quick)
				}
				if op.Valid() && op.Transport() == services[kind].transport {
					continue
				}
				if nothing == "" {
					nothing = quick
				}
				if quick != nothing {
					t.Errorf("%v to %v in %v: %s\nanother packet of another service: %s", op, kind, state, quick, nothing)
				}
			}
		}
	}
	x.close()
}
