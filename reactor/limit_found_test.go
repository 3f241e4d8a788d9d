package reactor_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: rounds in quick succession, which every timer makes a little late, do not
// stretch a long bound: what is twice a short wait is no stop of the process.
func TestLateTimersDoNotStretchTheBound(t *testing.T) {
	const bound, lateness = 5 * time.Second, time.Millisecond
	w := newWatched(t, reactor.Limit{Bound: bound, KeepAlive: 100 * time.Microsecond})
	w.deaf = true
	from := w.passed()
	w.post(t)
	for len(w.late) == 0 && w.passed()-from < 3*bound {
		next := w.r.NextTimer()
		if next.IsZero() {
			t.Fatal("sends are out, and no timer is set")
		}
		w.now = next.Add(lateness)
		w.settle()
	}
	if took := w.passed() - from; len(w.late) != 1 || took > bound+bound/8 {
		t.Errorf("told %d times, after %v; want once within %v and an eighth", len(w.late), took, bound)
	}
}

// Rule: a process that was stopped just before the bound hears its peer before it
// blames it.
func TestAStopJustBeforeTheBoundBlamesNobody(t *testing.T) {
	const bound = time.Second
	w := newWatched(t, reactor.Limit{Bound: bound})
	w.deaf = true
	w.post(t)
	w.pass(bound * 15 / 16)
	w.now = w.now.Add(time.Hour)
	w.settle()
	if len(w.late) != 0 {
		t.Fatalf("late at %v, in the first moment after an hour that the process slept through", w.at)
	}
	w.pass(bound / 4)
	if len(w.late) != 1 {
		t.Errorf("told %d times a quarter of the bound later, want once", len(w.late))
	}
}

// Rule: a keep-alive that the device does not take fails its queue: otherwise
// nothing would ever be out, and nobody would be late.
func TestARefusedKeepAliveFailsTheQueue(t *testing.T) {
	const every = time.Second
	w := newWatched(t, reactor.Limit{KeepAlive: every})
	w.refuse = true
	var failed error
	w.do(t, func() { w.q.OnFail(func(err error) { failed = err }) })
	w.pass(2 * every)
	if !errors.Is(failed, syscall.EIO) {
		t.Errorf("after two intervals the queue's owner was told %v, want %v", failed, syscall.EIO)
	}
}

// Rule: an atomic that failed was answered: with its failure.
func TestAFailedAtomicIsNotUnanswered(t *testing.T) {
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4}, nil)
	defer b.close(t)
	defer a.close(t)
	addr, key := b.remote(0)
	f, err := a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Remote: addr, RKey: key + 1, Add: 5}, &reactor.Payload{}, reactor.Wait)
	check(t, err)
	if _, err := f.Await(context.Background()); err == nil {
		t.Fatal("an atomic with a wrong key succeeded")
	}
	if n := a.r.Stats().Unanswered; n != 0 {
		t.Errorf("%d are counted as unanswered", n)
	}
}
