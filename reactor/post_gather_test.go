package reactor_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// A queue's part of a pass: the requests and bytes that a pass posts for one queue (doc.go,
// Fairness).
const (
	partRequests = 256
	partBytes    = 1 << 20
)

// lists records, for every pass, how many sends it posted to each queue pair (by number).
type lists []map[uint32]int

func (l *lists) hook(inner verbs.Context, t *verbs.IOBatch) error {
	m := map[uint32]int{}
	for _, g := range t.Sends {
		m[g.QP.Num()] += g.Count
	}
	*l = append(*l, m)
	return inner.Execute(t)
}

// flood keeps a queue full of n-byte writes: each completion submits another, until over is set.
type flood struct {
	e, peer *end
	n       int
	over    bool
	begun   int
	ended   int
	bad     error
}

func (f *flood) more() error {
	addr, key := f.peer.remote(0)
	_, sge := f.e.bytes(0, f.n)
	f.begun++
	_, err := f.e.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key, Sink: f}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock)
	return err
}

func (f *flood) Complete(_ reactor.SinkContext, _ reactor.Completion, err error) {
	f.ended++
	if err == nil && !f.over {
		err = f.more()
	}
	if err != nil && f.bad == nil {
		f.bad = err
	}
}

// Rule: a request is posted in the first pass after its submission, whatever other queues submit. A
// pass posts at most one part for each queue. The request's completion is dispatched after those
// before it in the completion queue; a pass dispatches PollBatch of them.
func TestATrickleIsNotDelayedByAFlood(t *testing.T) {
	onlySoft(t, "a device completes when it likes")
	const depth, batch, trickles = 4 * partRequests, 64, 300
	for name, c := range map[string]struct{ size, every, part, turns int }{
		// Of the flood, only the last request of a list and one in 32 are signaled, so few
		// completions come before the trickle's: the first poll finds it.
		"small requests": {8, 32, partRequests, 1},
		"large requests": {partBytes / 16, 32, 16, 1},
		// All requests of the flood are signaled, and their completions may all come before the
		// trickle's.
		"every one signaled": {8, 1, partRequests, 1 + depth/batch},
	} {
		t.Run(name, func(t *testing.T) {
			var turns lists
			a, b, h := hookedPair(t, reactor.Config{Stepped: true, PollBatch: batch}, reactor.QueueConfig{SendDepth: depth, SignalEvery: c.every})
			defer b.close(t)
			defer a.close(t)
			x, y := a.another(t, reactor.QueueConfig{SendDepth: 2}), b.another(t, reactor.QueueConfig{})
			x.ready(t, y)
			y.ready(t, x)
			defer y.closeQueue(t)
			defer x.closeQueue(t)
			f := &flood{e: a, peer: b, n: c.size}
			for range depth {
				must.Do(t, f.more())
			}
			h.set(turns.hook)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			for k := range trickles {
				for range rnd.IntN(3) {
					a.r.Step()
				}
				s, p := x.write(y)
				fut := must.Get(x.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
				from := len(turns)
				for !fut.Settled() {
					a.r.Step()
					if took := len(turns) - from; took > c.turns {
						t.Fatalf("trickle %d is not complete after %d turns beside a flood, want %d", k, took, c.turns)
					}
				}
				if got := turns[from][x.q.QP().Num()]; got != 1 {
					t.Fatalf("trickle %d was not posted in the turn after its submission: %v", k, turns[from:])
				}
				fut.Discard()
			}
			sum := 0
			for k, m := range turns {
				n := m[a.q.QP().Num()]
				if n > c.part {
					t.Fatalf("turn %d posted %d of the flood, its part is %d", k, n, c.part)
				}
				sum += n
			}
			// Each polled completion frees a slot for another request of the flood.
			if least := len(turns) * min(c.part, batch) / 2; sum < least {
				t.Errorf("%d turns posted %d of the flood, want at least %d", len(turns), sum, least)
			}
			f.over = true
			for range depth { // each pass completes some
				a.r.Step()
			}
			if f.ended != f.begun {
				t.Errorf("%d requests of the flood ended of %d", f.ended, f.begun)
			}
			must.Do(t, f.bad)
			if held := a.r.Stats().CarriedOver; held == 0 {
				t.Error("Stats.Held counted nothing")
			}
		})
	}
}

// Rule: requests that do not fit into a pass keep their order and complete once.
func TestWhatATurnHoldsBackKeepsItsOrder(t *testing.T) {
	const depth = 3*partRequests + 7
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth})
	defer b.close(t)
	defer a.close(t)
	var got []uint64
	done := make(chan struct{})
	a.do(t, func() { // only Flush runs a pass here
		for k := range depth {
			s, p := a.write(b)
			s.Tag, s.Sink = uint64(k), called(func(c reactor.Completion, err error) {
				try(t, err)
				if got = append(got, c.Tag); len(got) == depth {
					close(done)
				}
			})
			must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
			if k == 2*partRequests {
				a.r.Flush()
			}
		}
	})
	comes(t, "the last", done)
	if !slices.IsSorted(got) {
		t.Errorf("completed in another order than submitted: %v", got)
	}
}

// Rule: a queue is not idle while requests are carried over to the next pass. If it is released,
// these requests and later ones end with the cause, and none of them is posted.
func TestReleaseEndsWhatATurnHeldBack(t *testing.T) {
	for name, sealed := range map[string]bool{"released": false, "sealed, then released": true} {
		t.Run(name, func(t *testing.T) {
			const depth = 3 * partRequests
			a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth})
			defer b.close(t)
			defer a.closeRest(t)
			ended, failed, idle := 0, 0, false
			post := func(n int) {
				for range n {
					s, p := a.write(b)
					s.Sink = called(func(_ reactor.Completion, err error) {
						if ended++; err != nil {
							failed++
						}
					})
					must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
				}
			}
			a.do(t, func() { // only Flush runs a pass here
				post(depth - 10)
				a.r.Flush() // posts a part
				a.q.SendsIdle(func() { idle = true })
				if idle {
					t.Errorf("the queue is idle with %d of %d requests ended", ended, depth-10)
				}
				post(10)
				a.q.Fail(errOver)
				if sealed {
					a.q.Seal()
					a.r.Flush()
				}
				a.releaseHeld(t, errOver)
				if !idle || ended != depth || failed < depth-partRequests {
					t.Errorf("idle is %v, %d of %d requests ended, %d of them badly, want %d", idle, ended, depth, failed, depth-partRequests)
				}
			})
			if posted := a.r.Stats().WorkRequests; posted != partRequests {
				t.Errorf("%d requests were posted, want %d", posted, partRequests)
			}
		})
	}
}
