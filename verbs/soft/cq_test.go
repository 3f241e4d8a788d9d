package soft

import (
	"errors"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// nudge sends an empty message from a to b.
func (w *world) nudge(id uint64, flags verbs.SendFlags) {
	w.t.Helper()
	w.b.recv(id)
	w.a.mustPost(w.a.send(id, verbs.WRSend, flags))
	w.settle()
}

// event takes one completion event, and acknowledges it.
func (e *peer) event() (verbs.CQ, bool) {
	e.w.t.Helper()
	cq, ok, err := e.ch.GetEvent()
	must.Do(e.w.t, err)
	if ok {
		cq.AckEvents(1)
	}
	return cq, ok
}

// TestArmIsOneShot: an armed queue raises one event for the next completion, none for completions
// queued before; a queue that is not armed raises none.
func TestArmIsOneShot(t *testing.T) {
	w := newWorld(t, options{channel: true})
	none := func(when string) {
		t.Helper()
		if cq, ok := w.b.event(); ok {
			t.Fatalf("%s: an event of %v", when, cq)
		}
	}
	w.nudge(1, 0)
	none("not armed")
	must.Do(t, verbs.Arm(w.b.rcq, false))
	none("armed while a completion is queued already")
	w.nudge(2, 0)
	w.nudge(3, 0)
	if cq, ok := w.b.event(); !ok || cq != w.b.rcq {
		t.Fatalf("armed: event %v of %v, want one of the receive queue", ok, cq)
	}
	none("one arm, two completions")
	w.b.ok(w.b.poll(w.b.rcq), 1)
	must.Do(t, verbs.Arm(w.b.rcq, false))
	w.nudge(4, 0)
	w.b.ok(w.b.poll(w.b.rcq), 4)
	if _, ok := w.b.event(); !ok {
		t.Fatalf("the event of a completion polled meanwhile is still due")
	}
}

// Rule: who arms while the event of a completion is being raised gets no second event of that completion.
func TestArmingDuringTheEvent(t *testing.T) {
	w := newWorld(t, options{channel: true})
	rings := 0
	w.b.ch.Notify(func() { // once now, and at each event
		if rings++; rings == 2 {
			must.Do(t, verbs.Arm(w.b.rcq, false))
		}
	})
	must.Do(t, verbs.Arm(w.b.rcq, false))
	w.nudge(1, 0)
	if _, ok := w.b.event(); !ok || rings != 2 {
		t.Fatalf("the completion raised an event: %v, announced %d times", ok, rings-1)
	}
	if _, ok := w.b.event(); ok {
		t.Error("one completion raised two events")
	}
	w.nudge(2, 0)
	if _, ok := w.b.event(); !ok {
		t.Error("the next completion raised no event")
	}
}

// TestSolicitedArming: only solicited messages and failures raise an event.
func TestSolicitedArming(t *testing.T) {
	w := newWorld(t, options{channel: true})
	must.Do(t, verbs.Arm(w.b.rcq, true))
	w.nudge(1, 0)
	if _, ok := w.b.event(); ok {
		t.Fatalf("an unsolicited message raised an event")
	}
	w.nudge(2, verbs.SendSolicited)
	if _, ok := w.b.event(); !ok {
		t.Fatalf("a solicited message raised no event")
	}
	must.Do(t, verbs.Arm(w.b.rcq, true))
	w.b.recv(3)
	must.Do(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
	w.settle()
	if _, ok := w.b.event(); !ok {
		t.Fatalf("a flushed receive raised no event")
	}
	must.Do(t, verbs.Arm(w.b.rcq, false))
	must.Do(t, verbs.Arm(w.b.rcq, true)) // does not weaken the arming
	if a := w.b.rcq.(*completionQueue).armed.Load(); a != armAny {
		t.Fatalf("a solicited arming weakened one for any completion to %d", a)
	}
}

// TestUnacknowledgedEventsKeepTheQueue: Close returns ErrBusy until the last event is
// acknowledged.
func TestUnacknowledgedEventsKeepTheQueue(t *testing.T) {
	w := newWorld(t, options{channel: true})
	cq := must.Get(w.b.ctx.CreateCQ(4, w.b.ch, 0, 0))(t)
	q := cq.(*completionQueue)
	q.ch.raise(q) // as a completion would
	if err := w.b.ch.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing a channel with queues: %v, want ErrBusy", err)
	}
	if got, ok, _ := w.b.ch.GetEvent(); !ok || got != cq {
		t.Fatalf("event %v, %v", got, ok)
	}
	if err := cq.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing with an unacknowledged event: %v, want ErrBusy", err)
	}
	q.ch.raise(q) // never taken: discarded with the queue
	cq.AckEvents(1)
	must.Do(t, cq.Close())
	must.Do(t, cq.Close())
	if got, ok, _ := w.b.ch.GetEvent(); ok {
		t.Fatalf("an event of the closed %v", got)
	}
}

// TestOverrunKills: a queue without room becomes dead with CQ_ERR, its queue pairs fail with
// QP_FATAL each, and polling fails after the queued completions.
func TestOverrunKills(t *testing.T) {
	w := newWorld(t, options{cqe: 4})
	for i := range 5 {
		wr := w.a.send(uint64(i), verbs.WRRDMAWrite, verbs.SendSignaled)
		w.a.mustPost(wr)
	}
	w.settle()
	if ev := w.a.events(); !slices.Equal(ev, []verbs.AsyncEventType{verbs.EventCQErr, verbs.EventQPFatal}) {
		t.Fatalf("events %v, want CQ_ERR once and QP_FATAL once", ev)
	}
	if s := w.a.state(); s != verbs.QPSErr {
		t.Fatalf("queue pair in %v, want ERR", s)
	}
	buf, _ := mem.Array[verbs.WC](w.a.wcs, w.a.wcs.Addr(), 16)
	n, err := verbs.Poll(w.a.scq, buf)
	if n != 4 || !errors.Is(err, errnoCQDead) {
		t.Fatalf("poll: %d completions, %v; want 4 and %v", n, err, errnoCQDead)
	}
	if s := w.b.state(); s != verbs.QPSRTS {
		t.Fatalf("the peer is in %v: it has nothing to do with it", s)
	}
}

// TestResizeKeepsWhatIsQueued: completions stay queued in order, across several resizings.
func TestResizeKeepsWhatIsQueued(t *testing.T) {
	w := newWorld(t, options{cqe: 3})
	id := uint64(0)
	post := func(n int) {
		for range n {
			w.a.mustPost(w.a.send(id, verbs.WRRDMAWrite, verbs.SendSignaled))
			id++
		}
		w.settle()
	}
	post(3)
	if err := w.a.scq.Resize(2); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("resizing below what is queued: %v, want ErrInvalid", err)
	}
	must.Do(t, w.a.scq.Resize(6))
	if c := w.a.scq.Capacity(); c != 6 {
		t.Fatalf("capacity %d after resizing to 6", c)
	}
	post(3)
	must.Do(t, w.a.scq.Resize(10))
	post(4)
	wcs := w.a.poll(w.a.scq)
	if len(wcs) != 10 {
		t.Fatalf("%d completions, want 10", len(wcs))
	}
	w.a.ok(wcs, 0)
}

// TestResizeKeepsTheArming: a queue that is armed and resized raises its one event for the next
// completion, and none for the resizing.
func TestResizeKeepsTheArming(t *testing.T) {
	w := newWorld(t, options{channel: true, cqe: 4})
	w.nudge(1, 0)
	must.Do(t, verbs.Arm(w.b.rcq, false))
	must.Do(t, w.b.rcq.Resize(8))
	w.step()
	if cq, ok := w.b.event(); ok {
		t.Fatalf("an event of %v for resizing it", cq)
	}
	w.nudge(2, 0)
	w.nudge(3, 0)
	if _, ok := w.b.event(); !ok {
		t.Fatalf("no event for the completion behind the resizing")
	}
	if _, ok := w.b.event(); ok {
		t.Fatalf("two events of one arming")
	}
	w.b.ok(w.b.poll(w.b.rcq), 1)
}

// TestOverrunOfAResizedQueue: completions queued in each of its rings are still polled, in order,
// and then the error; the last size counts.
func TestOverrunOfAResizedQueue(t *testing.T) {
	w := newWorld(t, options{cqe: 8})
	post := func(first, n uint64) {
		for id := first; id < first+n; id++ {
			w.a.mustPost(w.a.send(id, verbs.WRRDMAWrite, verbs.SendSignaled))
		}
		w.settle()
	}
	post(0, 3)
	must.Do(t, w.a.scq.Resize(6))
	post(3, 3)
	if ev := w.a.events(); len(ev) != 0 {
		t.Fatalf("events %v before it was full", ev)
	}
	if err := w.a.scq.Resize(5); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("resizing to 5 with six queued: %v, want ErrInvalid", err)
	}
	must.Do(t, w.a.scq.Resize(7))
	post(6, 2)
	if ev := w.a.events(); !slices.Contains(ev, verbs.EventCQErr) {
		t.Fatalf("events %v, want CQ_ERR", ev)
	}
	must.Do(t, w.a.scq.Resize(16)) // does not revive it
	buf, _ := mem.Array[verbs.WC](w.a.wcs, w.a.wcs.Addr(), 16)
	n, err := verbs.Poll(w.a.scq, buf)
	if n != 7 || !errors.Is(err, errnoCQDead) {
		t.Fatalf("poll: %d completions, %v; want 7 and %v", n, err, errnoCQDead)
	}
	w.a.ok(buf[:n], 0)
}

// TestRemovedDeviceLetsSharedQueuesGo: shared receive queues, domains and their queue pairs can
// be closed, and all other calls fail.
func TestRemovedDeviceLetsSharedQueuesGo(t *testing.T) {
	x := newXRC(t) // closes everything
	plain, err := x.b.pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 2})
	must.Do(t, err)
	must.Do(t, x.p.Remove("b"))
	_, err = plain.Query()
	gone(t, "Query of an SRQ", err)
	gone(t, "SetLimit", plain.SetLimit(1))
	gone(t, "Resize", plain.Resize(4))
	_, err = x.dom.OpenQP(x.recv.Num(), 0)
	gone(t, "OpenQP", err)
	_, err = x.recv.Query()
	gone(t, "Query of an XRC_RECV queue pair", err)
	_, err = x.b.ctx.OpenXRCD(-1, 0)
	gone(t, "OpenXRCD", err)
	must.Do(t, plain.Close())
}
