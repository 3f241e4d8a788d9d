package reactor_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: with a recorder every send that is out for so long is told, those that are out
// longest first, with its place and the time it was submitted; none that is out for less.
func TestStuckTellsWhatIsOutForLong(t *testing.T) {
	w := slowly(t, 1)
	at := func(n int) time.Time { return watchedFrom.Add(time.Duration(n) * time.Second) }
	w.deaf = true
	for i := range 5 {
		w.now = at(i)
		w.submit(t, i)
		w.settle()
	}
	w.now = at(10)
	got := w.r.Stuck(8 * time.Second)
	if len(got) != 3 {
		t.Fatalf("stuck for 8 s: %v, want the 3 that are out for 10, 9 and 8", got)
	}
	for i, s := range got {
		if s.Bytes != uint32(i) || !s.Since.Equal(at(i)) || !s.Exact || !s.Submitted.Equal(at(i)) || s.Position != i || s.Out != 5 ||
			s.Queue != w.q || s.QPNum != w.q.QP().Num() || !s.Signaled || s.Opcode != verbs.WRRDMAWrite || s.Kind != reactor.KindWrite {
			t.Errorf("stuck: %+v, want the send of %d bytes, out since %v", s, i, at(i))
		}
	}
	if line := got[1].String(); !strings.Contains(line, ", 2 of 5 out, 0 waiting for room: since ") {
		t.Errorf("it prints %q", line)
	}
	w.deaf = false
	if got := w.r.Stuck(0); len(got) != 0 {
		t.Errorf("stuck: %v; all had completed, and was there to be polled", got)
	}
}

// Rule: without a recorder the oldest send of a queue is told, when it is certain that it is
// out for so long: never earlier, and at most an eighth of the bound later.
func TestStuckKnowsWhatThePatrolKnows(t *testing.T) {
	r := testRand(t)
	for range 40 {
		bound := time.Duration(1+r.IntN(1000)) * time.Millisecond
		w := newWatched(t, reactor.Limit{Bound: bound})
		for range r.IntN(5) { // something before
			w.post(t)
			w.pass(time.Duration(r.Int64N(int64(bound))))
		}
		w.deaf = true
		since := w.now
		w.post(t)
		w.post(t)
		w.pass(time.Duration(r.Int64N(int64(2 * bound))))
		out := w.now.Sub(since)
		if got := w.r.Stuck(out + 1); len(got) != 0 {
			t.Fatalf("bound %v: out for %v, stuck for longer: %v", bound, out, got)
		}
		got := w.r.Stuck(out - bound/8)
		if len(got) != 1 {
			t.Fatalf("bound %v: out for %v, %d are stuck for an eighth less: %v", bound, out, len(got), got)
		}
		s := got[0]
		if late := s.Since.Sub(since); late < 0 || late > bound/8 || s.Exact || s.Position != 0 || s.Out != 2 || s.Kind != reactor.KindWrite ||
			s.Bytes != 8 || !s.Signaled || !s.Submitted.IsZero() {
			t.Fatalf("bound %v, out since %v: %+v", bound, since, s)
		}
		w.ration = 1
		w.settle()
		if got := w.r.Stuck(1); len(got) != 0 {
			t.Fatalf("bound %v: stuck: %v, but nobody has looked since the send before it ended", bound, got)
		}
	}
}

// Rule: of a queue with neither recorder nor limit a call knows what the last one saw: nothing
// counts as out for longer than somebody has looked, and progress begins anew.
func TestStuckRemembersTheLastLook(t *testing.T) {
	w := newWatched(t, reactor.Limit{})
	stuck := func(longer time.Duration) int {
		t.Helper()
		return len(w.r.Stuck(longer))
	}
	w.deaf = true
	w.post(t)
	w.pass(time.Minute)
	if n := stuck(time.Second); n != 0 {
		t.Errorf("%d are stuck at the first look, want none: nobody knows", n)
	}
	w.pass(time.Minute)
	if n := stuck(time.Minute); n != 1 {
		t.Errorf("%d are stuck a minute after the first look, want 1", n)
	}
	w.post(t)
	w.ration = 1
	w.settle()
	if n := stuck(time.Second); n != 0 {
		t.Errorf("%d are stuck, want none: the first is done, the second was never looked at", n)
	}
}

// Rule: who waits for room in a queue whose sends are stuck is told with them.
func TestStuckTellsWhoWaitsForRoom(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 1, Recorder: 1})
	defer b.close(t)
	defer a.close(t)
	f := a.stray(t, reactor.Send{})
	ctx, cancel := context.WithCancel(bounded(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s, p := a.write(b)
		_, _ = a.q.Submit(ctx, s, &p, reactor.Wait)
	}()
	for waiting := 0; waiting != 1; runtime.Gosched() {
		got := a.r.Stuck(0)
		if len(got) != 1 || ctx.Err() != nil {
			t.Fatalf("stuck: %v, want the one send, and soon one that waits (%v)", got, ctx.Err())
		}
		waiting = got[0].Waiting
	}
	cancel()
	<-ended
	f.Discard()
}
