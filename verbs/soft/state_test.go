package soft

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestErrFlushesBothQueuesInOrder: also what is posted afterwards.
func TestErrFlushesBothQueuesInOrder(t *testing.T) {
	for _, real := range []bool{false, true} {
		w := newWorld(t, options{real: real})
		w.fab.Partition([]verbs.GID{w.a.gid}, []verbs.GID{w.b.gid})
		w.a.mustPost(w.a.send(1, verbs.WRSend, 0), w.a.send(2, verbs.WRSend, 0))
		w.a.recv(11)
		must(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
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

// TestResetForgets: neither work nor completions of before survive a reset,
// and the queue pair connects and works again.
func TestResetForgets(t *testing.T) {
	o := options{}
	w := newWorld(t, o)
	w.a.mustPost(w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled)) // of nothing: needs no key
	w.settle()
	w.a.recv(10)
	for _, e := range []*peer{w.a, w.b} {
		must(t, e.qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
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

// TestRefusedModifyChangesNothing: every step and state with an illegal mask.
func TestRefusedModifyChangesNothing(t *testing.T) {
	w := newWorld(t, options{apart: true})
	a := verbs.QPAttr{PathMTU: verbs.MTU1024, Port: 1, AccessFlags: allAccess, MaxRdAtomic: 1, MaxDestRdAtomic: 1, Timeout: 8}
	steps := []func(){
		func() {},
		func() { w.a.toRTR(a, w.b) },
		func() {
			a := a
			a.State = verbs.QPSRTS
			must(t, w.a.qp.Modify(&a, verbs.QPMState|verbs.QPMTimeout|verbs.QPMRetryCnt|verbs.QPMRNRRetry|verbs.QPMSQPSN|verbs.QPMMaxQPRdAtomic))
		},
		func() { must(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)) },
	}
	refused := 0
	for _, step := range steps {
		step()
		before, err := w.a.qp.Query()
		must(t, err)
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

// TestSQDDrains: what was begun is finished, what is posted waits, the event
// comes when all is quiet, and RTS goes on.
func TestSQDDrains(t *testing.T) {
	w := newWorld(t, options{})
	wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 50000))
	wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
	w.a.mustPost(wr)
	w.fab.Step()
	must(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSSQD, EnSQDAsyncNotify: true}, verbs.QPMState|verbs.QPMEnSQDAsyncNotify))
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
	must(t, w.a.qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS}, verbs.QPMState))
	w.a.ok(w.a.want(w.a.scq, 1), 2)
}

// TestCommEst: the first packet in RTR tells that the peer is there; receives
// are filled in RTR, sends are refused.
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

// TestQueuesFillAndFree: ENOMEM at the granted depth; places come back when a
// later completion is polled, not before.
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
