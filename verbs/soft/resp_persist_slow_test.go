package soft

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a persistent FLUSH that takes longer than all retries of its requester does not end the connection, if the
// requester repeats without end after RNR NAKs; the FLUSH and what follows are executed once, and complete as soon as
// the pages are written. Any other requester fails when its retries are used up.
func TestASlowDiskKeepsTheConnection(t *testing.T) {
	const lasts = 20 * time.Second
	for _, waits := range []bool{true, false} {
		p := newPoolOf(t, false, func(a *verbs.QPAttr) {
			a.AccessFlags, a.Timeout, a.RetryCnt, a.RNRRetry = persistent, 15, 7, verbs.RNRRetryInfinite
		})
		w, d := p.w, p.w.b.ctx.dev
		d.exclusive(func() {
			d.disk.syncIsQuick = func(*mem.Arena, int) bool { return false }
			l := d.line(writeBack, p.mr.(*memoryRegion))
			l.busy = jobsAtOnce // all are busy: the test writes itself
			w.b.qp.peerWaits = waits
		})
		t.Cleanup(func() { d.exclusive(func() { w.b.qp.forget(&w.b.qp.resp.disk) }) }) // or closing the region would wait for ever
		before := w.b.qp.resp.msn
		fill(w.a.data()[:8], 5)
		w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), p.mr.RKey(), 64, verbs.FlushPersistent, verbs.FlushRange),
			w.a.writeWR(2, 8, p.arena.Addr(), p.mr.RKey()))
		w.stepFor(lasts)
		if !waits {
			got := w.a.poll(w.a.scq)
			if len(got) == 0 || got[0].Status != verbs.WCRetryExcErr {
				t.Errorf("without RNR retries: %s, want RETRY_EXC_ERR first", statuses(got))
			}
			w.b.events()
			continue
		}
		if got := w.a.poll(w.a.scq); len(got) != 0 {
			t.Fatalf("while the pages are written: %s, want no completion", statuses(got))
		}
		if !bytes.Equal(p.arena.Bytes()[:8], make([]byte, 8)) {
			t.Error("the WRITE behind the FLUSH was executed before it")
		}
		d.exclusive(func() {
			l := d.line(writeBack, p.mr.(*memoryRegion))
			l.waiting[0].leave()
			l.busy++
			d.finished.Push(l.waiting[0])
			l.waiting = nil
		})
		w.step()
		got := w.a.poll(w.a.scq)
		if len(got) != 2 || got[0].Status != verbs.WCSuccess || got[1].Status != verbs.WCSuccess {
			t.Errorf("at the moment when the pages are written: %s, want two successes", statuses(got))
		}
		w.a.mustPostExtended(w.a.writeWR(3, 8, p.arena.Addr()+8, p.mr.RKey()))
		w.step()
		if got := w.a.poll(w.a.scq); len(got) != 1 || got[0].Status != verbs.WCSuccess {
			t.Errorf("a WRITE right after it: %s, want success at once: no RNR delay is left", statuses(got))
		}
		if n := w.b.qp.resp.msn - before; n != 3 || !bytes.Equal(p.arena.Bytes()[:8], w.a.data()[:8]) {
			t.Errorf("%d requests were executed, want 3; the memory is % x", n, p.arena.Bytes()[:8])
		}
	}
}

// Rule: FLUSHes are written in the order of their arrival. One whose queue pair is gone is not written, and nothing
// waits for it.
func TestFlushesAreWrittenInTheirOrder(t *testing.T) {
	p := newPool(t, true)
	w, d := p.w, p.w.b.ctx.dev
	mr := p.mr.(*memoryRegion)
	var qs []*queuePair
	for range 3 {
		q := w.b.newQP(w.b.qp.granted)
		t.Cleanup(func() { must.Do(t, q.Close()) })
		qs = append(qs, q)
	}
	written := make(chan int, len(qs))
	d.exclusive(func() {
		d.disk.sync = func(_ *mem.Arena, _ uint64, n int) error { written <- n; return nil }
		l := d.line(writeBack, mr)
		l.busy = jobsAtOnce
		for i, q := range qs {
			q.persist(q.resp.expected, mr, mr.addr, 1+i)
		}
		if len(written) != 0 || len(l.waiting) != len(qs) {
			t.Errorf("%d are written and %d wait, want 0 and %d: all writers are busy", len(written), len(l.waiting), len(qs))
		}
		qs[1].forget(&qs[1].resp.disk)
		l.busy-- // one writer is free now
		l.start()
		qs[0].resp.disk, qs[2].resp.disk = nil, nil // no requester waits for an answer
	})
	if got := []int{<-written, <-written}; !slices.Equal(got, []int{1, 3}) {
		t.Errorf("written in the order %v, want [1 3]", got)
	}
	mr.atDisk.Wait()
	d.exclusive(func() { d.line(writeBack, mr).busy -= jobsAtOnce - 1 })
	for busy := 1; busy != 0; {
		d.exclusive(func() { busy = d.line(writeBack, mr).busy })
	}
}
