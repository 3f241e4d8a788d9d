package soft

import (
	"errors"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestResizeKeepsTheArming: a queue that is armed and resized raises its one
// event for the next completion, and none for the resizing.
func TestResizeKeepsTheArming(t *testing.T) {
	w := newWorld(t, options{channel: true, cqe: 4})
	w.nudge(1, 0)
	must(t, verbs.Arm(w.b.rcq, false))
	must(t, w.b.rcq.Resize(8))
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

// TestOverrunOfAResizedQueue: what was queued in each of its rings is still
// polled, in order, and then that it is dead; the size that counts is the last.
func TestOverrunOfAResizedQueue(t *testing.T) {
	w := newWorld(t, options{cqe: 8})
	post := func(first, n uint64) {
		for id := first; id < first+n; id++ {
			w.a.mustPost(w.a.send(id, verbs.WRRDMAWrite, verbs.SendSignaled))
		}
		w.settle()
	}
	post(0, 3)
	must(t, w.a.scq.Resize(6))
	post(3, 3)
	if ev := w.a.events(); len(ev) != 0 {
		t.Fatalf("events %v before it was full", ev)
	}
	if err := w.a.scq.Resize(5); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("resizing to 5 with six queued: %v, want ErrInvalid", err)
	}
	must(t, w.a.scq.Resize(7))
	post(6, 2)
	if ev := w.a.events(); !slices.Contains(ev, verbs.EventCQErr) {
		t.Fatalf("events %v, want CQ_ERR", ev)
	}
	must(t, w.a.scq.Resize(16)) // does not bring it back
	buf, _ := mem.Array[verbs.WC](w.a.wcs, w.a.wcs.Addr(), 16)
	n, err := verbs.Poll(w.a.scq, buf)
	if n != 7 || !errors.Is(err, errnoCQDead) {
		t.Fatalf("poll: %d completions, %v; want 7 and %v", n, err, errnoCQDead)
	}
	w.a.ok(buf[:n], 0)
}

// TestRemovedDeviceLetsSharedQueuesGo: shared receive queues, domains and their
// queue pairs can be closed, and do nothing else.
func TestRemovedDeviceLetsSharedQueuesGo(t *testing.T) {
	x := newXRC(t) // closes everything
	plain, err := x.b.pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 2})
	must(t, err)
	must(t, x.p.Remove("b"))
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
	must(t, plain.Close())
}
