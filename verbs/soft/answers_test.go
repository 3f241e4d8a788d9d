package soft

import (
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// readsWR is a READ of n bytes of b's memory, under a key.
func (e *peer) readWR(id uint64, n int, from uint64, key uint32) request {
	wr := e.send(id, verbs.WRRDMARead, verbs.SendSignaled, e.sge(0, n))
	wr.SetRDMA(from, key)
	return wr
}

// TestRefusedReadLeavesTheReceiveOfASend: a READ whose region goes away while it
// is answered is refused with an event. The receive that a later SEND has begun
// to fill has done nothing wrong: it is flushed.
func TestRefusedReadLeavesTheReceiveOfASend(t *testing.T) {
	w := newWorld(t, options{})
	mr := w.b.register(allAccess)
	w.fab.SetLink(w.a.gid, w.b.gid, lose(1, wire.RCSendLast))
	w.b.recv(9, w.b.sge(0, 4096))
	const n = readChunk << 10 // answered in more than one turn
	w.a.mustPost(w.a.readWR(1, n, w.b.at(0), w.b.mr.RKey()), w.a.readWR(2, n, w.b.at(0), mr.RKey()),
		w.a.send(3, verbs.WRSend, 0, w.a.sge(0, 3000)))
	for w.b.qp.resp.kind != sendMessage {
		if !w.fab.Step() {
			t.Fatalf("the SEND did not begin while the READs were being answered: %+v %v", w.b.qp.resp, statuses(w.a.poll(w.a.scq)))
		}
	}
	if w.b.qp.resp.pending() == 0 {
		t.Fatal("both READs were answered in one turn")
	}
	must(t, mr.Close())
	w.settle()
	if got := statuses(w.b.poll(w.b.rcq)); got != "9:WR_FLUSH_ERR " {
		t.Fatalf("the receive of the SEND completes %q, want it flushed", got)
	}
	if ev := w.b.events(); !slices.Contains(ev, verbs.EventQPAccessErr) {
		t.Fatalf("events %v, want QP_ACCESS_ERR for the READ", ev)
	}
	w.a.poll(w.a.scq)
}

// TestAnswersOfABusyReaderAreBounded: a peer that always has a READ outstanding
// never lets the list of answers run empty; it must not grow with what has been
// answered.
func TestAnswersOfABusyReaderAreBounded(t *testing.T) {
	w := newWorld(t, options{})
	const n = readChunk << 10
	var done uint64
	post := func() {
		w.a.mustPost(w.a.readWR(done, n, w.b.at(0), w.b.mr.RKey()))
		done++
	}
	for range 8 {
		post()
	}
	for done < 1000 {
		if !w.fab.Step() {
			at, ok := w.fab.NextEvent()
			if !ok {
				t.Fatal("the READs stopped")
			}
			w.fab.AdvanceTo(at)
		}
		for range w.a.poll(w.a.scq) {
			post()
		}
	}
	if got := cap(w.b.qp.resp.out); got > 64 {
		t.Fatalf("the list of answers has grown to %d places for 8 READs at a time", got)
	}
	w.settle()
	w.a.poll(w.a.scq)
}

// TestFloodOfFlushesIsBounded: FLUSH takes none of the resources that bound READs
// and atomics, so the answers to it have a bound of their own.
func TestFloodOfFlushesIsBounded(t *testing.T) {
	w := newWorld(t, options{access: flushGlobal})
	f := wire.Header{Opcode: wire.RCFlush, VA: w.b.at(0), RKey: w.b.mr.RKey(), Length: 8, FlushPlacement: 1}
	first := w.next()
	q := w.a.qp
	q.dev.exclusive(func() {
		for i := range uint64(20000) {
			f.PSN = narrow(first + i)
			q.transmit(q.dev.p.Get(), &f)
		}
	})
	most := 0
	for w.fab.Step() {
		most = max(most, w.b.qp.resp.pending()) // virtual time: one goroutine
	}
	if most > windowPSNs || most == 0 {
		t.Fatalf("%d answers to FLUSHes wait, the bound is %d", most, windowPSNs)
	}
	if w.b.state() != verbs.QPSRTS {
		t.Fatalf("the queue pair is in %v", w.b.state())
	}
}
