package soft

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// returned counts released packets.
type returned struct{ n atomic.Int64 }

func (r *returned) PacketDone(*fabric.Packet) { r.n.Add(1) }

// guarded is a returned whose memory was taken back: reading it would be a fault.
type guarded struct{ returned }

func (g *guarded) Enter() bool { return false }
func (g *guarded) Leave()      {}

// sendBehind sends n FLUSHes to b after the outstanding one, with a gap in the PSNs, so that none
// is executed. holder, if not nil, is called when they are released.
func (p *pool) sendBehind(n int, holder fabric.Holder) {
	q := p.w.a.qp
	q.dev.exclusive(func() {
		for i := range n {
			k := q.dev.p.Get()
			k.Holder = holder
			q.transmit(k, &wire.Header{Opcode: wire.RCFlush, PSN: narrow(q.req.acked + 2 + uint64(i)), FlushPlacement: 1, RKey: p.mr.RKey(), VA: p.arena.Addr()})
		}
	})
}

// answersTo runs send with a's token, which sends n packets, and waits until b has handled them.
// It returns how many packets b has sent in the meantime.
func (p *pool) answersTo(n int, send func()) uint64 {
	p.w.t.Helper()
	d := p.w.b.ctx.dev
	before := d.p.Stats() // between Progress calls
	p.w.a.qp.dev.exclusive(send)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if s := d.p.Stats(); s.RxPackets == before.RxPackets+uint64(n) {
			return s.TxPackets - before.TxPackets
		}
	}
	p.w.t.Fatalf("b has taken %d packets, want %d", d.p.Stats().RxPackets-before.RxPackets, n)
	return 0
}

// repeat makes a resend its n outstanding packets as often as a requester retries. It returns how
// many packets b has sent in the meantime.
func (p *pool) repeat(n int) (answers uint64) {
	p.w.t.Helper()
	const retries = 7
	q := p.w.a.qp
	for range retries {
		answers += p.answersTo(n, func() {
			q.req.seek(q.sq.Load(), q.req.acked)
			q.dev.activate(q)
		})
	}
	return answers
}

// Rule: a request that is repeated while a FLUSH is being written is parked once, the FLUSH
// itself not at all, so that repetitions take no room from other requests. A request executed
// before the FLUSH is acknowledged at once.
func TestRequestsAreParkedOnce(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	r := &ranges{gate: make(chan error)}
	r.install(p)
	at := p.arena.Addr()
	w.b.recv(9, w.b.sge(0, 100))
	w.a.mustPostExtended(
		w.a.writeWR(1, 100, at, p.mr.RKey()),
		w.a.flushWR(2, at, p.mr.RKey(), 100, verbs.FlushPersistent, verbs.FlushRange),
		w.a.readWR(3, 3000, at, p.mr.RKey()),
		w.a.atomicWR(4, at+4096, p.mr.RKey(), 42),
		w.a.flushWR(5, at+4096, p.mr.RKey(), 8, verbs.FlushPersistent, verbs.FlushRange),
		w.a.send(6, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 100)))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	p.awaitParked(4)
	if n := p.repeat(5); n != 0 {
		t.Errorf("%d answers while the FLUSH is being written", n)
	}
	p.awaitParked(4)
	q := w.a.qp
	if n := p.answersTo(1, func() { // as if the WRITE's acknowledgement had been lost
		h := wire.Header{Opcode: wire.RCWriteOnly, PSN: narrow(q.req.acked - 1), AckReq: true, VA: at, RKey: p.mr.RKey()}
		q.transmit(q.dev.p.Get(), &h)
	}); n != 1 {
		t.Errorf("%d acknowledgements of a WRITE that was executed before the FLUSH, want 1", n)
	}
	r.gate <- nil
	w.a.ok(w.a.want(w.a.scq, 3), 2)
	p.awaitParked(1)
	p.repeat(2)
	p.awaitParked(1)
	r.gate <- nil
	w.a.ok(w.a.want(w.a.scq, 2), 5)
	w.b.ok(w.b.want(w.b.rcq, 1), 9)
}

// Rule: a request lost behind a FLUSH that is being written is requested again when the pages are
// written, without the requester's timer.
func TestWhatIsLostBehindAFlushIsAskedFor(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	r := &ranges{gate: make(chan error)}
	r.install(p)
	at := p.arena.Addr()
	w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Rules: []fabric.Rule{{Opcodes: []wire.Opcode{wire.RCAtomicWrite}, From: 1, To: 1, Drop: true}}})
	w.a.mustPostExtended(
		w.a.flushWR(1, at, p.mr.RKey(), 8, verbs.FlushPersistent, verbs.FlushRange),
		w.a.atomicWR(2, at, p.mr.RKey(), 42),
		w.a.writeWR(3, 8, at+8, p.mr.RKey()))
	p.awaitParked(1)
	r.gate <- nil
	w.a.ok(w.a.want(w.a.scq, 3), 1)
}

// Rule: packets that were parked and then dropped, behind a SEND without a receive, are parked
// again behind the next FLUSH.
func TestWhatWasDroppedIsParkedAgain(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	r := &ranges{gate: make(chan error)}
	r.install(p)
	at := p.arena.Addr()
	w.a.mustPostExtended(
		w.a.flushWR(1, at, p.mr.RKey(), 8, verbs.FlushPersistent, verbs.FlushRange),
		w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)),
		w.a.flushWR(3, at, p.mr.RKey(), 8, verbs.FlushPersistent, verbs.FlushRange),
		w.a.writeWR(4, 8, at, p.mr.RKey()))
	p.awaitParked(3)
	r.gate <- nil
	w.a.ok(w.a.want(w.a.scq, 1), 1) // in the Progress call that dropped the rest
	w.b.recv(9, w.b.sge(0, 8))
	w.a.ok(w.a.want(w.a.scq, 1), 2)
	p.awaitParked(1)
	r.gate <- nil
	w.a.ok(w.a.want(w.a.scq, 2), 3)
}

// TestParkedPacketsAreGivenBack: packets parked behind a FLUSH give their memory back once. A link's buffer is
// given back when the packet is parked, since a link has few. A requester's memory is neither copied nor
// read then, for it may have been taken back: it is given back when the packet is executed or dropped.
func TestParkedPacketsAreGivenBack(t *testing.T) {
	const n = 5
	var buffer returned
	var lent guarded
	for _, c := range []struct {
		name   string
		holder fabric.Holder
		back   *returned
		parked int64 // given back when they are parked
	}{{"a link's buffer", &buffer, &buffer, n}, {"a requester's memory", &lent, &lent.returned, 0}} {
		for _, drop := range []bool{false, true} {
			p := newPool(t, true)
			w := p.w
			r := &ranges{gate: make(chan error, 1)}
			r.install(p)
			w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0))
			p.awaitParked(0)
			c.back.n.Store(0)
			p.sendBehind(n, c.holder)
			p.awaitParked(n)
			w.b.qp.dev.exclusive(func() {}) // after the Progress call that parked the last
			if got := c.back.n.Load(); got != c.parked {
				t.Fatalf("%s: %d of %d parked packets were given back before the pages were written, want %d", c.name, got, n, c.parked)
			}
			if drop {
				must.Do(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
				r.gate <- nil
			} else {
				r.gate <- nil
				w.a.ok(w.a.want(w.a.scq, 1), 1)
				w.b.qp.dev.exclusive(func() {}) // after the Progress call that answered
			}
			if got := c.back.n.Load(); got != n {
				t.Fatalf("%s, dropped %v: %d parked packets were given back %d times", c.name, drop, n, got)
			}
		}
	}
}

// TestSyncsThatEndTogether: when the pages of several FLUSHes are written before the engine runs,
// each FLUSH is answered.
func TestSyncsThatEndTogether(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	other := *w.a
	b := *w.b
	other.qp, b.qp = w.a.newQP(w.a.qp.granted), w.b.newQP(w.b.qp.granted)
	t.Cleanup(func() { must.Do(t, other.qp.Close()); must.Do(t, b.qp.Close()) })
	(&world{t: t, fab: w.fab, p: w.p, a: &other, b: &b}).connect(options{real: true, mtu: verbs.MTU1024, attr: persistentAttr})
	d := w.b.ctx.dev
	gate := make(chan error, 2)
	t.Cleanup(func() { close(gate) })
	d.exclusive(func() { d.disk.sync = func(*mem.Arena, uint64, int) error { return <-gate } })
	w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0))
	p.awaitParked(0)
	other.mustPostExtended(other.flushWR(2, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0))
	for waiting := false; !waiting; runtime.Gosched() {
		d.exclusive(func() { waiting = b.qp.resp.disk != nil })
	}
	d.exclusive(func() { // the engine runs after both have been handed over
		gate <- nil
		gate <- nil
		p.mr.(*memoryRegion).atDisk.Wait()
	})
	if got := w.a.want(w.a.scq, 2); got[0].Status != verbs.WCSuccess || got[1].Status != verbs.WCSuccess {
		t.Fatalf("completions %+v, want both FLUSHes answered", got)
	}
}

// TestEveryCloseOfARegionWaits: a Close concurrent with another one returns no earlier than that:
// its caller may then rely on owning the memory.
func TestEveryCloseOfARegionWaits(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	r := &ranges{gate: make(chan error, 1)}
	r.install(p)
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
	must.Do(t, <-closed)
	must.Do(t, <-closed)
	if r.done.Load() != 1 {
		t.Fatal("the region was closed while its pages were being written")
	}
	must.Do(t, p.arena.Unmap())
}
