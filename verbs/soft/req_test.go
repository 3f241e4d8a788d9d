package soft

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// kinds runs fn in each of the worlds in which every lossless rule must hold.
func kinds(t *testing.T, fn func(t *testing.T, w *world)) {
	for _, k := range []struct {
		name string
		o    options
	}{
		{"virtual/256", options{mtu: verbs.MTU256}},
		{"virtual/4096", options{mtu: verbs.MTU4096}},
		{"virtual/jumbo", options{jumbo: true}},
		{"real/1024", options{real: true}},
		{"real/jumbo", options{real: true, jumbo: true}},
	} {
		t.Run(k.name, func(t *testing.T) { fn(t, newWorld(t, k.o)) })
	}
}

// sizes are lengths around multiples of every path MTU.
var sizes = []int{0, 1, 8, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 70000}

func TestWriteMovesTheBytes(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for i, n := range sizes {
			fill(w.a.data()[:n], byte(i))
			clear(w.b.data()[:80000])
			wr := w.a.send(uint64(i), verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, n))
			wr.SetRDMA(w.b.at(100), w.b.mr.RKey())
			w.a.mustPost(wr)
			wcs := w.a.want(w.a.scq, 1)
			w.a.ok(wcs, uint64(i))
			if wcs[0].Opcode != verbs.WCRDMAWrite {
				t.Fatalf("a WRITE completes as RDMA_WRITE, got %v", wcs[0].Opcode)
			}
			if !bytes.Equal(w.b.data()[100:100+n], w.a.data()[:n]) {
				t.Fatalf("%d bytes differ after WRITE", n)
			}
			if w.b.data()[99] != 0 || w.b.data()[100+n] != 0 {
				t.Fatalf("WRITE of %d bytes touched a byte beside its range", n)
			}
		}
	})
}

func TestReadMovesTheBytes(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for i, n := range append(sizes, 600000) {
			fill(w.b.data()[:n], byte(i))
			clear(w.a.data())
			wr := w.a.send(uint64(i), verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(10, n/3), w.a.sge(10+n/3, n-n/3))
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			w.a.mustPost(wr)
			wcs := w.a.want(w.a.scq, 1)
			w.a.ok(wcs, uint64(i))
			if wcs[0].Opcode != verbs.WCRDMARead || wcs[0].ByteLen != uint32(n) {
				t.Fatalf("READ of %d completes with %v, %d bytes", n, wcs[0].Opcode, wcs[0].ByteLen)
			}
			if !bytes.Equal(w.a.data()[10:10+n], w.b.data()[:n]) {
				t.Fatalf("%d bytes differ after READ", n)
			}
			if w.a.data()[9] != 0 || w.a.data()[10+n] != 0 {
				t.Fatalf("READ of %d bytes touched a byte beside its range", n)
			}
		}
	})
}

func TestSendFillsTheReceiveInOrder(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for i, n := range sizes {
			clear(w.b.data())
			fill(w.a.data()[:n], byte(i))
			w.b.recv(uint64(i), w.b.sge(0, 40000), w.b.sge(40000, 40000))
			wr := w.a.send(uint64(i), verbs.WRSendWithImm, verbs.SendSignaled, w.a.sge(0, n/2), w.a.sge(n/2, n-n/2))
			wr.SetImm(0x01020304)
			w.a.mustPost(wr)
			w.a.ok(w.a.want(w.a.scq, 1), uint64(i))
			r := w.b.want(w.b.rcq, 1)
			w.b.ok(r, uint64(i))
			if r[0].Opcode != verbs.WCRecv || r[0].ByteLen != uint32(n) || r[0].Flags&verbs.WCWithImm == 0 || r[0].Imm() != 0x01020304 {
				t.Fatalf("SEND_WITH_IMM of %d received as %v, %d bytes, %v, imm 0x%x", n, r[0].Opcode, r[0].ByteLen, r[0].Flags, r[0].Imm())
			}
			if !bytes.Equal(w.b.data()[:n], w.a.data()[:n]) {
				t.Fatalf("%d bytes differ after SEND", n)
			}
		}
	})
}

func TestWriteWithImmTakesAReceive(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for i, n := range sizes {
			fill(w.a.data()[:n], byte(i))
			w.b.recv(uint64(i))
			wr := w.a.send(uint64(i), verbs.WRRDMAWriteWithImm, verbs.SendSignaled, w.a.sge(0, n))
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			wr.SetImm(uint32(i))
			w.a.mustPost(wr)
			w.a.ok(w.a.want(w.a.scq, 1), uint64(i))
			r := w.b.want(w.b.rcq, 1)
			w.b.ok(r, uint64(i))
			if r[0].Opcode != verbs.WCRecvRDMAWithImm || r[0].ByteLen != uint32(n) || r[0].Imm() != uint32(i) {
				t.Fatalf("WRITE_WITH_IMM of %d received as %v, %d bytes, imm %d", n, r[0].Opcode, r[0].ByteLen, r[0].Imm())
			}
			if !bytes.Equal(w.b.data()[:n], w.a.data()[:n]) {
				t.Fatalf("%d bytes differ after WRITE_WITH_IMM", n)
			}
		}
	})
}

func TestAtomics(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		w.b.setWord(64, 40)
		add := w.a.send(1, verbs.WRAtomicFetchAndAdd, verbs.SendSignaled, w.a.sge(0, 8))
		add.SetFetchAdd(w.b.at(64), w.b.mr.RKey(), 2)
		hit := w.a.send(2, verbs.WRAtomicCmpAndSwp, verbs.SendSignaled, w.a.sge(8, 8))
		hit.SetCompareSwap(w.b.at(64), w.b.mr.RKey(), 42, 7)
		miss := w.a.send(3, verbs.WRAtomicCmpAndSwp, verbs.SendSignaled, w.a.sge(16, 8))
		miss.SetCompareSwap(w.b.at(64), w.b.mr.RKey(), 42, 9)
		w.a.mustPost(add, hit, miss)
		wcs := w.a.want(w.a.scq, 3)
		w.a.ok(wcs, 1)
		for i, op := range []verbs.WCOpcode{verbs.WCFetchAdd, verbs.WCCompSwap, verbs.WCCompSwap} {
			if wcs[i].Opcode != op || wcs[i].ByteLen != 8 {
				t.Fatalf("atomic %d completes as %v with %d bytes, want %v with 8", i, wcs[i].Opcode, wcs[i].ByteLen, op)
			}
		}
		if got := fmt.Sprint(w.a.word(0), w.a.word(8), w.a.word(16), w.b.word(64)); got != "40 42 7 7" {
			t.Fatalf("found and left behind: %s, want 40 42 7 7", got)
		}
	})
}

func TestInlineBufferIsFreeAtOnce(t *testing.T) {
	kinds(t, func(t *testing.T, w *world) {
		for _, n := range []int{5, 200} {
			fill(w.a.data()[:n], 9)
			want := bytes.Clone(w.a.data()[:n])
			s := w.a.sge(0, n)
			s.LKey = 0 // ignored
			wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled|verbs.SendInline, s)
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			w.a.mustPost(wr)
			clear(w.a.data()[:n])
			w.a.ok(w.a.want(w.a.scq, 1), 1)
			if !bytes.Equal(w.b.data()[:n], want) {
				t.Fatalf("inline payload of %d bytes is not what stood there when it was posted", n)
			}
		}
	})
}

// TestLongReadTakesOneResource: a READ of many thousand packets works with a responder that
// serves one at a time, also with other READs queued behind it.
func TestLongReadTakesOneResource(t *testing.T) {
	w := newWorld(t, options{mtu: verbs.MTU256, attr: func(a *verbs.QPAttr) { a.MaxRdAtomic, a.MaxDestRdAtomic = 1, 1 }})
	const n = 500000
	fill(w.b.data()[:n], 5)
	var wrs []request
	for i := range 3 {
		wr := w.a.send(uint64(i), verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(n*(i%2), n))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		wrs = append(wrs, wr)
	}
	w.a.mustPost(wrs...)
	w.a.ok(w.a.want(w.a.scq, 3), 0)
	if !bytes.Equal(w.a.data()[:n], w.b.data()[:n]) || !bytes.Equal(w.a.data()[n:2*n], w.b.data()[:n]) {
		t.Fatalf("bytes differ")
	}
}

// TestErrFlushesBothQueuesInOrder: requests posted afterwards are flushed too.
func TestErrFlushesBothQueuesInOrder(t *testing.T) {
	for _, real := range []bool{false, true} {
		w := newWorld(t, options{real: real})
		w.fab.Partition([]verbs.GID{w.a.gid}, []verbs.GID{w.b.gid})
		w.a.mustPost(w.a.send(1, verbs.WRSend, 0), w.a.send(2, verbs.WRSend, 0))
		w.a.recv(11)
		must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		w.a.mustPost(w.a.send(3, verbs.WRSend, 0))
		w.a.recv(12)
		if got := statuses(w.a.want(w.a.scq, 3)); got != "1:WR_FLUSH_ERR 2:WR_FLUSH_ERR 3:WR_FLUSH_ERR " {
			t.Fatalf("sends: %q", got)
		}
		if got := statuses(w.a.want(w.a.rcq, 2)); got != "11:WR_FLUSH_ERR 12:WR_FLUSH_ERR " {
			t.Fatalf("receives: %q", got)
		}
	}
}

// TestResetForgets: neither requests nor completions survive a reset, and the queue pair connects
// and works again.
func TestResetForgets(t *testing.T) {
	o := options{}
	w := newWorld(t, o)
	w.a.mustPost(w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled)) // empty: needs no key
	w.settle()
	w.a.recv(10)
	for _, e := range []*peer{w.a, w.b} {
		must.Do(t, e.qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
	}
	w.settle()
	if got := append(w.a.poll(w.a.scq), w.a.poll(w.a.rcq)...); len(got) != 0 {
		t.Fatalf("completions of before the reset: %+v", got)
	}
	if _, err := w.a.post(w.a.send(1, verbs.WRSend, 0)); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("posting in RESET: %v, want EINVAL", err)
	}
	w.connect(options{mtu: verbs.MTU256, access: allAccess})
	w.b.recv(50)
	w.a.mustPost(w.a.send(2, verbs.WRSend, verbs.SendSignaled))
	w.a.ok(w.a.want(w.a.scq, 1), 2)
	w.b.ok(w.b.want(w.b.rcq, 1), 50)
}

// TestRefusedModifyChangesNothing: every transition and state with an invalid mask.
func TestRefusedModifyChangesNothing(t *testing.T) {
	w := newWorld(t, options{apart: true})
	a := verbs.QPAttr{PathMTU: verbs.MTU1024, Port: 1, AccessFlags: allAccess, MaxRdAtomic: 1, MaxDestRdAtomic: 1, Timeout: 8}
	steps := []func(){
		func() {},
		func() { w.a.toRTR(a, w.b) },
		func() {
			a := a
			a.State = verbs.QPSRTS
			must.Do(t, w.a.qp.Modify(&a, verbs.QPMState|verbs.QPMTimeout|verbs.QPMRetryCnt|verbs.QPMRNRRetry|verbs.QPMSQPSN|verbs.QPMMaxQPRdAtomic))
		},
		func() { must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)) },
	}
	refused := 0
	for _, step := range steps {
		step()
		before := must.Get(w.a.qp.Query())(t)
		for to := verbs.QPSReset; to <= verbs.QPSErr; to++ {
			for _, mask := range []verbs.QPAttrMask{0, verbs.QPMSQPSN, verbs.QPMAV | verbs.QPMPathMTU, verbs.QPMRateLimit} {
				mask |= verbs.QPMState
				if verbs.CheckTransition(verbs.QPTRC, before.State, to, mask) == nil {
					continue
				}
				refused++
				b := a
				b.State, b.SQPSN = to, 99
				if err := w.a.qp.Modify(&b, mask); !errors.Is(err, verbs.ErrInvalidTransition) {
					t.Fatalf("%v to %v with %v: %v, want ErrInvalidTransition", before.State, to, mask, err)
				}
				if after, _ := w.a.qp.Query(); after != before {
					t.Fatalf("a refused step from %v to %v changed %+v to %+v", before.State, to, before, after)
				}
			}
		}
	}
	if refused < 50 {
		t.Fatalf("only %d steps were refused: the test tests nothing", refused)
	}
}

// TestSQDDrains: started requests are finished, posted ones wait, the event is raised when none
// is outstanding, and RTS continues.
func TestSQDDrains(t *testing.T) {
	w := newWorld(t, options{})
	wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 50000))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
	w.a.mustPost(wr)
	w.fab.Step()
	must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSSQD, EnSQDAsyncNotify: true}, verbs.QPMState|verbs.QPMEnSQDAsyncNotify))
	if a, _ := w.a.qp.Query(); a.State != verbs.QPSSQD {
		t.Fatalf("state %v", a.State)
	}
	w.a.mustPost(w.a.send(2, verbs.WRRDMAWrite, verbs.SendSignaled))
	w.settle()
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	if ev := w.a.events(); len(ev) != 1 || ev[0] != verbs.EventSQDrained {
		t.Fatalf("events %v, want SQ_DRAINED", ev)
	}
	if a, _ := w.a.qp.Query(); a.SQDraining {
		t.Fatalf("still draining after the event")
	}
	must.Do(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState))
	w.a.ok(w.a.want(w.a.scq, 1), 2)
}

// TestCommEst: the first packet in RTR raises COMM_EST; in RTR receives are accepted and filled,
// sends are refused.
func TestCommEst(t *testing.T) {
	w := newWorld(t, options{apart: true})
	a := verbs.QPAttr{PathMTU: verbs.MTU1024, Port: 1, AccessFlags: allAccess, MaxDestRdAtomic: 1, MaxRdAtomic: 1, RetryCnt: 1, Timeout: 8}
	w.a.toRTS(a, w.b)
	w.b.toRTR(a, w.a)
	w.b.recv(50)
	w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	w.b.ok(w.b.want(w.b.rcq, 1), 50)
	if ev := w.b.events(); len(ev) != 1 || ev[0] != verbs.EventCommEst {
		t.Fatalf("events %v, want COMM_EST once", ev)
	}
	if _, err := w.b.post(w.b.send(1, verbs.WRSend, 0)); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("posting a send in RTR: %v, want EINVAL", err)
	}
}

// TestQueuesFillAndFree: ENOMEM at the granted depth; slots are freed when a later completion is
// polled, not before.
func TestQueuesFillAndFree(t *testing.T) {
	w := newWorld(t, options{cap: verbs.QPCap{MaxSendWR: 5, MaxRecvWR: 3}})
	var wrs []request
	for i := range 6 {
		f := verbs.SendFlags(0)
		if i == 4 {
			f = verbs.SendSignaled
		}
		wrs = append(wrs, w.a.send(uint64(i), verbs.WRRDMAWrite, f))
	}
	if n, err := w.a.post(wrs...); n != 5 || !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("%d accepted, %v; want 5 and ENOMEM", n, err)
	}
	w.settle()
	if n, err := w.a.post(w.a.send(9, verbs.WRRDMAWrite, 0)); n != 0 || !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("done but not polled: %d accepted, %v; want ENOMEM", n, err)
	}
	w.a.ok(w.a.poll(w.a.scq), 4)
	for i := range 5 {
		w.a.mustPost(w.a.send(uint64(10+i), verbs.WRRDMAWrite, 0))
	}
	w.settle()
	if _, err := w.a.post(w.a.send(20, verbs.WRRDMAWrite, 0)); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("a queue that never signals must run full, got %v", err)
	}
	for i := range 3 {
		w.b.recv(uint64(i))
	}
	addr := w.b.alloc(verbs.SizeofRecvWR)
	if n, err := verbs.PostRecv(w.b.qp, addr, 1); n != 0 || !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("a fourth receive of three: %d accepted, %v; want ENOMEM", n, err)
	}
}
