package soft

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// returned counts the packets that were given back.
type returned struct{ n atomic.Int64 }

func (r *returned) PacketDone(*fabric.Packet) { r.n.Add(1) }

// TestParkedPacketsAreGivenBack: what was parked behind a FLUSH is given back
// once, executed or dropped: senders may wait for it.
func TestParkedPacketsAreGivenBack(t *testing.T) {
	for _, drop := range []bool{false, true} {
		p := newPool(t, true)
		w := p.w
		r := &ranges{gate: make(chan error, 1)}
		r.install(p)
		w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0))
		p.awaitParked(0)
		const n = 5
		var back returned
		w.a.qp.dev.exclusive(func() {
			for range n { // the FLUSH comes again
				h := wire.Header{Opcode: wire.RCFlush, PSN: narrow(w.a.qp.req.acked), FlushPlacement: 1, RKey: p.mr.RKey(), VA: p.arena.Addr()}
				k := w.a.qp.dev.p.Get()
				k.Holder = &back
				w.a.qp.transmit(k, &h)
			}
		})
		p.awaitParked(n)
		if got := back.n.Load(); got != 0 {
			t.Fatalf("%d parked packets were given back before the pages were written", got)
		}
		if drop {
			must(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
			r.gate <- nil
		} else {
			r.gate <- nil
			w.a.ok(w.a.want(w.a.scq, 1), 1)
			w.b.qp.dev.exclusive(func() {}) // behind the turn that answered
		}
		if got := back.n.Load(); got != n {
			t.Fatalf("dropped %v: %d of %d parked packets were given back", drop, got, n)
		}
	}
}

// TestSyncsThatEndTogether: when the pages of several FLUSHes are written before
// the engine looks, each is answered.
func TestSyncsThatEndTogether(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	other := *w.a
	b := *w.b
	other.qp, b.qp = w.a.newQP(w.a.qp.granted), w.b.newQP(w.b.qp.granted)
	t.Cleanup(func() { must(t, other.qp.Close()); must(t, b.qp.Close()) })
	(&world{t: t, fab: w.fab, p: w.p, a: &other, b: &b}).connect(options{real: true, mtu: verbs.MTU1024, attr: func(a *verbs.QPAttr) { a.AccessFlags = persistent }})
	d := w.b.ctx.dev
	gate := make(chan error, 2)
	var ended atomic.Int32
	d.exclusive(func() {
		d.syncRange = func(*mem.Arena, uint64, int) error {
			err := <-gate
			ended.Add(1)
			return err
		}
	})
	w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0))
	p.awaitParked(0)
	other.mustPostExtended(other.flushWR(2, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0))
	for waiting := false; !waiting; runtime.Gosched() {
		d.exclusive(func() { waiting = b.qp.resp.sync != nil })
	}
	d.exclusive(func() { // the engine looks when both have been handed over
		gate <- nil
		gate <- nil
		for len(d.syncSlots) > 0 || ended.Load() < 2 {
			runtime.Gosched()
		}
	})
	if got := w.a.want(w.a.scq, 2); got[0].Status != verbs.WCSuccess || got[1].Status != verbs.WCSuccess {
		t.Fatalf("completions %+v, want both FLUSHes answered", got)
	}
}

// TestEveryCloseOfARegionWaits: a Close that finds another under way returns no
// earlier than that: who called it may believe that the memory is its own.
func TestEveryCloseOfARegionWaits(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	r := &ranges{gate: make(chan error, 1)}
	r.install(p)
	t.Cleanup(func() { close(r.gate) })
	mr := p.mr.(*memoryRegion)
	w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), mr.RKey(), 8, verbs.FlushPersistent, 0))
	p.awaitParked(0)
	closed := make(chan error, 2)
	go func() { closed <- mr.Close() }()
	for !mr.closed.Load() {
		runtime.Gosched()
	}
	go func() { closed <- mr.Close() }()
	for range 10000 { // time for a Close that does not wait
		if len(closed) > 0 {
			t.Fatal("Close returned while pages of the region were being written")
		}
		runtime.Gosched()
	}
	r.gate <- nil
	must(t, <-closed)
	must(t, <-closed)
	if r.done.Load() != 1 {
		t.Fatal("the region was closed while its pages were being written")
	}
	must(t, p.arena.Unmap())
}
