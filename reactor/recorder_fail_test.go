package reactor_test

import (
	"context"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: when a queue fails, what failed it and what went before it stay in the recorder,
// however much is flushed after it.
func TestTheFlushPushesNoCauseOut(t *testing.T) {
	const depth = 32
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth, RecvDepth: depth, Recorder: 2})
	defer b.close(t)
	box := make(tally, depth)
	_, sge := a.bytes(0, 8)
	for range depth {
		check(t, a.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{sge}, reactor.Wait))
	}
	for _, f := range a.batch(t, b, 2) {
		await(t, f, nil)
	}
	var fs []reactor.Future
	a.do(t, func() {
		for i := range depth {
			s, p := a.write(b)
			if i == 0 {
				s.RKey ^= 0xffff
			}
			f, err := a.q.Submit(context.Background(), s, &p, reactor.Try)
			check(t, err)
			fs = append(fs, f)
		}
	})
	for _, f := range fs {
		_, _ = f.Await(bounded(t))
	}
	a.closeQueue(t)
	count := map[verbs.WCStatus]int{}
	all := a.q.Recorded()
	for i, r := range all {
		s, ok := r.Status()
		if !ok {
			t.Errorf("%v has no status", r)
		}
		if count[s]++; s == verbs.WCRemAccessErr && i != 2 {
			t.Errorf("the cause is record %d, want it right after the two that were well", i)
		}
	}
	if count[verbs.WCSuccess] != 2 || count[verbs.WCRemAccessErr] != 1 || count[verbs.WCWRFlushErr] != 2*depth-1 {
		t.Errorf("recorded %v, want 2 well, 1 remote access error and %d flushed", count, 2*depth-1)
	}
	a.closeRest(t)
}

// Rule: the recorder can be read while many submit and others drive; every record's times
// are in order, and what has ended stands before what is out.
func TestTheRecorderIsReadWhileItRuns(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 16, Recorder: 32})
	defer b.close(t)
	defer a.close(t)
	ops := 2000
	if onDevice() {
		ops = 100
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			s, p := a.write(b)
			lone := a.transfer(b, 0)
			for range ops {
				if g%2 == 0 {
					_, err := a.q.TransferWait(context.Background(), &lone)
					try(t, err)
					continue
				}
				f, err := a.q.Submit(context.Background(), s, &p, reactor.Quiet)
				if err == nil {
					_, err = f.Await(context.Background())
				}
				try(t, err)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		out := false
		for _, r := range a.q.Recorded() {
			bad := r.Posted.Before(r.Submitted) || r.Submitted.IsZero() || r.Bytes != 8
			if r.Ended.IsZero() {
				out = true
			} else {
				bad = bad || out || r.Ended.Before(r.Posted)
			}
			if bad {
				t.Errorf("recorded: %v, behind one that is out: %t", r, out)
				running = false
				break
			}
		}
	}
	<-done
}
