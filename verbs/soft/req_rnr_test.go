package soft

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// TestRNR: a SEND without a receive waits for one; it fails after rnr_retry retries, each after
// the responder's delay.
func TestRNR(t *testing.T) {
	w := newWorld(t, options{attr: func(a *verbs.QPAttr) { a.RNRRetry, a.MinRNRTimer = 2, 5 }})
	w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	w.step()
	w.b.recv(50, w.b.sge(0, 8))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	w.b.ok(w.b.want(w.b.rcq, 1), 50)

	from := w.fab.Now()
	w.a.mustPost(w.a.send(2, verbs.WRSend, 0, w.a.sge(0, 8)))
	if got := statuses(w.first(w.a.scq)); got != "2:RNR_RETRY_EXC_ERR " {
		t.Fatalf("completions %q", got)
	}
	if took, want := w.fab.Now()-from, 2*verbs.RNRTimeout(5); took != want {
		t.Fatalf("gave up after %v, want %v: two delays of the responder's timer", took, want)
	}
	if w.b.state() != verbs.QPSRTS {
		t.Fatalf("the receiver is in %v, want RTS: RNR is not its failure", w.b.state())
	}
}

// TestSequenceNAKsBehindRNR: while the receiver is not ready, a NAK of the packets that followed, as rdma_rxe
// sends it, neither uses up a retry nor starts another resend, however late it arrives.
func TestSequenceNAKsBehindRNR(t *testing.T) {
	w := newWorld(t, options{attr: func(a *verbs.QPAttr) {
		a.RetryCnt, a.RNRRetry, a.MinRNRTimer = 1, verbs.RNRRetryInfinite, 1
	}})
	w.fab.SetAll(fabric.Link{Delay: oneWay})
	w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)), w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	r, nak := &w.a.qp.req, w.a.qp.req.acked
	for resends := 0; resends < 5; {
		w.step()
		if r.next == r.acked+2 && r.notReady {
			resends++
			q := w.b.qp
			q.dev.exclusive(func() {
				q.transmit(q.dev.p.Get(), &wire.Header{Opcode: wire.RCAcknowledge, PSN: narrow(nak), Syndrome: wire.Nak(wire.NakSequence)})
			})
			w.fab.AdvanceTo(w.fab.Now() + oneWay)
			w.step()
			if r.next != r.acked+2 {
				t.Fatalf("the NAK behind resend %d went back to PSN %d of %d to %d", resends, r.next, r.acked, r.sent)
			}
		}
		at, _ := w.fab.NextEvent()
		w.fab.AdvanceTo(at)
	}
	w.b.recv(50, w.b.sge(0, 8))
	w.b.recv(51, w.b.sge(0, 8))
	w.a.ok(w.a.want(w.a.scq, 2), 1)
	w.b.ok(w.b.want(w.b.rcq, 2), 50)
}

// TestRNRRestoresTheRetries: timeouts between a peer's RNR NAKs are not added up. Only retries without any
// answer between them give the peer up.
func TestRNRRestoresTheRetries(t *testing.T) {
	w := newWorld(t, options{attr: func(a *verbs.QPAttr) {
		a.RetryCnt, a.Timeout, a.RNRRetry, a.MinRNRTimer = 1, 10, verbs.RNRRetryInfinite, 1
	}})
	w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	for range 5 {
		w.step()
		if !w.a.qp.req.rnrWait {
			t.Fatalf("no RNR delay, completions %q", statuses(w.a.poll(w.a.scq)))
		}
		w.fab.Partition([]verbs.GID{w.a.gid}, []verbs.GID{w.b.gid})
		w.fab.AdvanceTo(w.fab.Now() + verbs.RNRTimeout(1))
		w.step() // the resend is lost
		w.fab.Heal()
		w.fab.AdvanceTo(w.fab.Now() + verbs.AckTimeout(10))
	}
	w.b.recv(50, w.b.sge(0, 8))
	w.a.ok(w.a.want(w.a.scq, 1), 1)

	// The same if the NAK comes when the requester has gone back, and has not sent again.
	q, r := w.a.qp, &w.a.qp.req
	q.dev.exclusive(func() {
		r.retries = 0
		q.rnrDelay(r.next, verbs.RNRTimeout(1))
	})
	if r.retries != 1 || r.rnrWait {
		t.Errorf("%d retries are left after an RNR NAK, want 1; waits: %t", r.retries, r.rnrWait)
	}
}

// TestCopiesOfANAKUseUpNoRetry: the network copies a sequence NAK; the copies come after the resend, and neither use up
// a retry nor go back again.
func TestCopiesOfANAKUseUpNoRetry(t *testing.T) {
	w := newWorld(t, options{attr: func(a *verbs.QPAttr) { a.RetryCnt = 1 }})
	w.fab.SetAll(fabric.Link{Delay: oneWay})
	w.a.mustPost(w.a.send(1, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)), w.a.send(2, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 8)))
	w.b.recv(50, w.b.sge(0, 8))
	w.b.recv(51, w.b.sge(0, 8))
	w.step()
	r := &w.a.qp.req
	for i := range 9 {
		if got := r.retries; got != uint8(1-min(i, 1)) || r.next != r.acked+2 {
			t.Fatalf("after %d copies of a NAK %d retries are left, and PSN %d of %d to %d is next", i, got, r.next, r.acked, r.sent)
		}
		w.a.qp.dev.exclusive(func() { w.a.qp.onAck(r.acked, wire.Nak(wire.NakSequence)) })
		w.step()
	}
	w.a.ok(w.a.want(w.a.scq, 2), 1)
	w.b.ok(w.b.want(w.b.rcq, 2), 50)
}
