package reactor_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// deaf makes the device ignore requests to arm its completion queues. So no completion
// raises an event.
func (h *hooked) deaf() {
	h.set(func(inner verbs.Context, turn *verbs.IOBatch) error {
		arms := turn.Arms
		turn.Arms = nil
		err := inner.Execute(turn)
		turn.Arms = arms
		return err
	})
}

// answered posts a SEND on the queue of a and then a receive on the queue of b, and waits
// until the SEND completes.
func answered(t *testing.T, a, b *end) {
	t.Helper()
	f := a.stray(t, reactor.Send{})
	_, to := b.bytes(64, 8)
	must.Do(t, b.q.PostRecv(&reactor.Recv{Sink: make(inbox, 1)}, []verbs.SGE{to}, reactor.Block))
	if _, err := f.Await(bounded(t)); err != nil {
		t.Fatalf("the SEND ended with %v, want success", err)
	}
}

// Rule: if the event of a completion is lost, the reactor finds the completion within
// Config.Recheck, without any other activity. Then the reactor arms the completion queue again.
func TestLostEventIsFoundInTime(t *testing.T) {
	cfg := reactor.Config{NoCallerDriving: true, Spin: -1, Recheck: 20 * time.Millisecond}
	a, b, h := hookedPair(t, cfg, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	h.deaf()
	// If a recheck finds a completion without an event, the event may still come, so this recheck does
	// not count the event as lost. If the event has not come by the next recheck, it counts as lost.
	for tries := 0; a.r.Stats().MissedEvents == 0; tries++ {
		if tries == 50 {
			t.Fatalf("after %d completions without events Stats.MissedEvents is still 0: %+v", tries, a.r.Stats())
		}
		answered(t, a, b)
	}
	h.hook.Store(nil)
	before := a.r.Stats().Events
	// Until the next recheck, the reactor treats the completion queue as armed, although the device
	// has not armed it.
	for tries := 0; a.r.Stats().Events == before; tries++ {
		if tries == 50 {
			t.Fatalf("%d SENDs completed and raised no event: the completion queue was not armed again", tries)
		}
		answered(t, a, b)
	}
}

// Rule: if a reactor has no queues, no timer wakes its loop for a recheck.
func TestRecheckEndsWithTheLastQueue(t *testing.T) {
	cfg := reactor.Config{Recheck: time.Millisecond}
	a, b := pair(t, cfg, reactor.QueueConfig{})
	b.close(t)
	a.do(t, func() {
		must.Do(t, a.q.QP().Close())
		must.Do(t, a.q.Release(reactor.ErrClosed))
	})
	for !a.r.NextTimer().IsZero() { // one recheck may still be due
		runtime.Gosched()
	}
	a.closeRest(t)
}

// Rule: reactors with equal Config.Recheck run their rechecks at the same times, even if the reactors
// were created at different times. So an idle process wakes one time for all rechecks.
func TestReactorsLookAtTheSameMoments(t *testing.T) {
	const every = 24 * time.Hour // no recheck is due during this test
	a, b := pair(t, reactor.Config{Recheck: every}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	a.do(t, func() {}) // waits until the loop has set its timer
	b.do(t, func() {})
	one, other := a.r.NextTimer(), b.r.NextTimer()
	if one.IsZero() || !one.Equal(other) || time.Until(one) > every {
		t.Errorf("the next rechecks are at %v and %v, want the same time within the next %v", one, other, every)
	}
}
