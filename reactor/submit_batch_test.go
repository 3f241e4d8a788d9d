package reactor_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// tags is a sink that records the order of completions. The holder owns it until it closes the
// channel all.
type tags struct {
	got  []uint64
	want int
	all  chan struct{}
	errs []error
}

func newTags(n int) *tags { return &tags{want: n, all: make(chan struct{})} }

func (s *tags) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	s.got = append(s.got, c.Tag)
	s.errs = append(s.errs, err)
	if len(s.got) == s.want {
		close(s.all)
	}
}

// Rule: the transfers of one batch are posted in their order, with no other request between them,
// also with concurrent submitters. The batches of one goroutine are posted in their order.
func TestSeveralStayTogether(t *testing.T) {
	const goroutines, rounds, of = 5, 200, 7
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 2 * goroutines * of})
	defer b.close(t)
	defer a.close(t)
	s := newTags(goroutines * rounds * of)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for round := range rounds {
				var fs []reactor.Future
				var run reactor.BatchSubmitter
				run.Reset(a.q)
				for k := range of {
					tag := uint64(g)<<32 | uint64(round*of+k)
					tr := a.followed(b, tag, s)
					if k == of-1 {
						tr.Sink = nil // so that there is a future to await
					}
					f, err := run.Transfer(t.Context(), tr, of-1-k, reactor.NoWakeup)
					try(t, err)
					fs = append(fs, f)
				}
				run.Submit(reactor.NoWakeup)
				_, err := fs[of-1].Await(bounded(t))
				try(t, err)
			}
		})
	}
	all.Wait()
	const notes = of - 1 // completions with a sink, of each batch
	a.do(t, func() {
		if len(s.got) != goroutines*rounds*notes {
			t.Fatalf("%d of %d completed", len(s.got), goroutines*rounds*notes)
		}
		next := [goroutines]uint64{}
		for i, tag := range s.got {
			g, n := tag>>32, tag&(1<<32-1)
			if n != next[g] {
				t.Fatalf("goroutine %d: completion %d is of its transfer %d, want %d", g, i, n, next[g])
			}
			if n%of != 0 && s.got[i-1] != tag-1 {
				t.Fatalf("transfer %d of goroutine %d came behind %x: others were between", n, g, s.got[i-1])
			}
			if next[g]++; next[g]%of == notes {
				next[g]++
			}
		}
	})
}

// Rule: a transfer that finds no free slot waits for one. The earlier transfers of its batch are
// submitted first, and the order stays. If the wait is canceled, the submitted transfers complete.
func TestSeveralWaitForRoom(t *testing.T) {
	const depth, n = 3, 3 * reactor.MaxSubmitBatch
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth})
	defer b.close(t)
	defer a.close(t)
	s := newTags(n)
	var run reactor.BatchSubmitter
	run.Reset(a.q)
	for k := range n {
		must.Get(run.Transfer(bounded(t), a.followed(b, uint64(k), s), n-1-k, reactor.NoWakeup))(t)
	}
	run.Submit(reactor.Block)
	comes(t, "the last", s.all)
	for k, tag := range s.got {
		if tag != uint64(k) || s.errs[k] != nil {
			t.Fatalf("completion %d is of transfer %d: %v", k, tag, s.errs[k])
		}
	}
	var stuck []reactor.Future // the peer has no receive
	for range depth - 1 {
		stuck = append(stuck, a.stray(t, reactor.Send{}))
	}
	ended, cancel := context.WithCancel(t.Context())
	f := must.Get(run.Transfer(ended, a.followed(b, 0, nil), 1, reactor.NoWakeup))(t)
	cancel()
	if _, err := run.Transfer(ended, a.followed(b, 1, nil), 0, reactor.NoWakeup); !errors.Is(err, context.Canceled) {
		t.Errorf("without room: %v, want %v", err, context.Canceled)
	}
	run.Submit(reactor.NoWakeup)
	for _, f := range append(stuck, f) {
		f.Discard()
	}
}

// Rule: if a transfer is refused, the earlier ones of its batch can still be submitted. No slot is
// lost, also if the queue fails meanwhile, so the queue is reclaimed and the reactor closed.
func TestSeveralRefused(t *testing.T) {
	const depth = 6
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth})
	defer b.close(t)
	s := newTags(2)
	var run reactor.BatchSubmitter
	run.Reset(a.q)
	for k := range 2 {
		must.Get(run.Transfer(t.Context(), a.followed(b, uint64(k), s), depth, reactor.NoWakeup))(t)
	}
	bad := a.followed(b, 2, s)
	bad.Opcode = verbs.WRSend
	if _, err := run.Transfer(t.Context(), bad, depth, reactor.NoWakeup); !errors.Is(err, reactor.ErrRequest) {
		t.Errorf("a SEND: %v, want %v", err, reactor.ErrRequest)
	}
	run.Submit(reactor.Block)
	comes(t, "those before the refused one", s.all)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var run reactor.BatchSubmitter
			run.Reset(a.q)
			for {
				for k := range depth / 2 {
					if _, err := run.Transfer(bounded(t), a.followed(b, 0, called(func(reactor.Completion, error) {})), depth/2-k, reactor.NoWakeup); err != nil {
						if !errors.Is(err, reactor.ErrQueueFailed) {
							t.Error(err)
						}
						run.Submit(reactor.NoWakeup)
						return
					}
				}
				run.Submit(reactor.Block)
			}
		})
	}
	for range 100 { // they submit meanwhile
		a.do(t, func() {})
	}
	a.q.Fail(errOver)
	all.Wait()
	a.close(t)
}

// Rule: transfers that are submitted after the release of their queue end, although no goroutine
// drives and there is no recheck.
func TestSeveralBehindARelease(t *testing.T) {
	a, b := pair(t, reactor.Config{Recheck: -1}, reactor.QueueConfig{})
	defer b.close(t)
	var run reactor.BatchSubmitter
	run.Reset(a.q)
	f := must.Get(run.Transfer(t.Context(), a.followed(b, 0, nil), 0, reactor.NoWakeup))(t)
	slept := a.r.Sleeps()
	a.release(t, errOver)
	for a.r.Sleeps() == slept { // until the loop has nothing to do
		runtime.Gosched()
	}
	run.Submit(reactor.NoWakeup)
	comes(t, "the end of it", f.Done())
	a.closeRest(t)
}
