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

// tags is a sink that records the completions in order. The holder owns the fields until Complete
// has closed the channel tags.all.
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

// Rule: the transfers of a batch are posted in order, with no other request between them, even if
// other goroutines submit at the same time. The batches of a goroutine are posted in order.
func TestSeveralStayTogether(t *testing.T) {
	const goroutines, rounds, of = 5, 200, 7 // number of goroutines, batches of each goroutine, transfers of each batch
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
						tr.Sink = nil // a transfer without a sink has a future
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
	const notes = of - 1 // transfers with a sink in each batch
	a.do(t, func() {
		if len(s.got) != goroutines*rounds*notes {
			t.Fatalf("%d transfers with a sink completed, want %d", len(s.got), goroutines*rounds*notes)
		}
		next := [goroutines]uint64{}
		for i, tag := range s.got {
			g, n := tag>>32, tag&(1<<32-1)
			if n != next[g] {
				t.Fatalf("goroutine %d: completion %d is of the goroutine's transfer %d, want %d", g, i, n, next[g])
			}
			if n%of != 0 && s.got[i-1] != tag-1 {
				t.Fatalf("goroutine %d: its transfer %d completed right after tag %#x, want right after the transfer before it in the batch", g, n, s.got[i-1])
			}
			if next[g]++; next[g]%of == notes {
				next[g]++
			}
		}
	})
}

// Rule: a transfer that finds no free slot waits for one. The earlier transfers of its batch are
// submitted before this wait, and the order is kept. If the context ends, the wait ends with the
// context's error.
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
	comes(t, "the last completion", s.all)
	for k, tag := range s.got {
		if tag != uint64(k) || s.errs[k] != nil {
			t.Fatalf("completion %d is of transfer %d with the error %v, want transfer %d and success", k, tag, s.errs[k], k)
		}
	}
	var stuck []reactor.Future // SENDs that do not complete, because the peer has no receive
	for range depth - 1 {
		stuck = append(stuck, a.stray(t, reactor.Send{}))
	}
	ended, cancel := context.WithCancel(t.Context())
	f := must.Get(run.Transfer(ended, a.followed(b, 0, nil), 1, reactor.NoWakeup))(t)
	cancel()
	if _, err := run.Transfer(ended, a.followed(b, 1, nil), 0, reactor.NoWakeup); !errors.Is(err, context.Canceled) {
		t.Errorf("Transfer without a free slot returned %v, want %v", err, context.Canceled)
	}
	run.Submit(reactor.NoWakeup)
	for _, f := range append(stuck, f) {
		f.Discard()
	}
}

// Rule: after BatchSubmitter.Transfer has returned an error, the earlier transfers of the batch can
// be submitted. No slot is lost, even if the queue fails while goroutines submit batches: the queue
// is reclaimed, and the reactor can be closed.
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
		t.Errorf("Transfer of a SEND returned %v, want %v", err, reactor.ErrRequest)
	}
	run.Submit(reactor.Block)
	comes(t, "the completions of the transfers before the refused one", s.all)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var run reactor.BatchSubmitter
			run.Reset(a.q)
			for {
				for k := range depth / 2 {
					if _, err := run.Transfer(bounded(t), a.followed(b, 0, called(func(reactor.Completion, error) {})), depth/2-k, reactor.NoWakeup); err != nil {
						if !errors.Is(err, reactor.ErrQueueFailed) {
							t.Errorf("Transfer returned %v, want nil or ErrQueueFailed", err)
						}
						run.Submit(reactor.NoWakeup)
						return
					}
				}
				run.Submit(reactor.Block)
			}
		})
	}
	for range 100 { // meanwhile the goroutines submit batches
		a.do(t, func() {})
	}
	a.q.Fail(errOver)
	all.Wait()
	a.close(t)
}

// Rule: if a BatchSubmitter has filled a transfer before the release of its queue, and submits it
// after the release, the transfer ends, even if no goroutine drives and there is no recheck.
func TestSeveralBehindARelease(t *testing.T) {
	a, b := pair(t, reactor.Config{Recheck: -1}, reactor.QueueConfig{})
	defer b.close(t)
	var run reactor.BatchSubmitter
	run.Reset(a.q)
	f := must.Get(run.Transfer(t.Context(), a.followed(b, 0, nil), 0, reactor.NoWakeup))(t)
	slept := a.r.Sleeps()
	a.release(t, errOver)
	for a.r.Sleeps() == slept { // wait until the loop sleeps again
		runtime.Gosched()
	}
	run.Submit(reactor.NoWakeup)
	comes(t, "the end of the transfer", f.Done())
	a.closeRest(t)
}
