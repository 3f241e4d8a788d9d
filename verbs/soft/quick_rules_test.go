package soft

import (
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: the quick way is for packets of the MTU and queue pairs of RC.
func TestQuickWayIsForOnePacketOfRC(t *testing.T) {
	for _, c := range []struct {
		name string
		o    options
		n    uint32
	}{
		{"longer than the MTU", options{mtu: verbs.MTU256}, 257},
		{"on UC", options{kind: verbs.QPTUC}, 8},
		{"of nothing on UC", options{kind: verbs.QPTUC}, 0},
	} {
		w := newWorld(t, c.o)
		w.b.qp.resp.established = true
		p := plain{payload: make([]byte, c.n), from: w.a.qp}
		before := w.next()
		p.h = wire.Header{Opcode: wire.RCWriteOnly, VA: w.b.at(0), RKey: w.b.mr.RKey(), Length: c.n, PSN: narrow(before)}
		w.a.qp.dev.exclusive(func() { w.raw(&p, nil) })
		w.settle()
		if w.next() != before {
			t.Errorf("a packet %s was executed", c.name)
		}
	}
	for _, kind := range types {
		q := queuePair{kind: kind, mtu: 1024, dev: &device{cfg: DeviceConfig{Limits: Limits{MaxMsgSize: 512}}}}
		if got := q.quickSize(); (got == 512) != (kind == verbs.QPTRC) || got != 512 && got != 0 {
			t.Errorf("messages of %d bytes are quick on %v", got, kind)
		}
	}
}

// Rule: the quick way reads no buffer that its owner has back (see guard).
func TestQuickWayReadsNothingTakenBack(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRSend} {
		w := newWorld(t, options{jumbo: true})
		write := func(id uint64, n int) request {
			wr := w.b.send(id, op, 0, w.b.sge(0, n))
			if w.a.recv(id, w.a.sge(0, n)); op == verbs.WRRDMAWrite {
				wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
			}
			return wr
		}
		w.b.mustPost(write(1, 8)) // from then on the quick way is open
		w.settle()
		mem.Poison(w.a.data())
		fill(w.b.data(), 3)
		w.b.mustPost(write(2, 5000))
		inFlight(w)
		must(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		fill(w.b.data(), 99) // its owner has it back
		w.settle()
		if at := mem.Poisoned(w.a.data()); at >= 0 {
			t.Errorf("%v: the buffer was read after its completion: byte %d came over", op, at)
		}
	}
}

// Rule: a fenced request leaves when the READ before it is answered, quick or not.
func TestQuickWayHonoursAFence(t *testing.T) {
	for _, flags := range []verbs.SendFlags{verbs.SendFence, verbs.SendFence | verbs.SendInline} {
		w := newWorld(t, options{})
		var order []wire.Opcode
		w.fab.SetTrace(func(ev fabric.Event) {
			if o := wire.Opcode(ev.Hdr[0]); o == wire.RCReadRespLast || o == wire.RCWriteOnly {
				order = append(order, o)
			}
		}, false)
		read := w.a.send(1, verbs.WRRDMARead, 0, w.a.sge(0, 3000))
		read.SetRDMA(w.b.at(0), w.b.mr.RKey())
		write := w.a.send(2, verbs.WRRDMAWrite, verbs.SendSignaled|flags, w.a.sge(0, 8))
		write.SetRDMA(w.b.at(4096), w.b.mr.RKey())
		w.a.mustPost(read, write)
		w.a.ok(w.a.want(w.a.scq, 1), 2)
		if want := []wire.Opcode{wire.RCReadRespLast, wire.RCWriteOnly}; !slices.Equal(order, want) {
			t.Errorf("with %v the packets went %v, want %v", flags, order, want)
		}
		w.fab.SetTrace(nil, false)
	}
}

// Rule: in SQD no request is begun, quick or not.
func TestQuickWayWaitsInSQD(t *testing.T) {
	w := newWorld(t, options{})
	must(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSSQD}, verbs.QPMState))
	wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
	w.a.mustPost(wr)
	w.settle()
	if w.a.qp.req.fresh != 0 {
		t.Error("a request was begun in SQD")
	}
	must(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
}

// Rule: a requester never has more packets outstanding than the window, quick or
// not.
func TestQuickWayKeepsTheWindow(t *testing.T) {
	w := newWorld(t, options{cap: verbs.QPCap{MaxSendWR: 1024, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	w.fab.SetAll(fabric.Link{Delay: time.Millisecond})
	for i := range 2 * windowPSNs {
		wr := w.a.send(uint64(i), verbs.WRRDMAWrite, 0, w.a.sge(0, 8))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		w.a.mustPost(wr)
	}
	w.step()
	if r := &w.a.qp.req; r.next-r.acked != windowPSNs {
		t.Fatalf("%d packets are outstanding, want %d", r.next-r.acked, windowPSNs)
	}
	w.settle()
}
