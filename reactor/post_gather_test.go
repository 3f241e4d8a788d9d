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

// A queue's part of a pass is the list of sends that the pass posts for this queue. The list has at
// most partRequests sends, and ends earlier with the send that brings it to partBytes (doc.go,
// Fairness).
const (
	partRequests = 256
	partBytes    = 1 << 20
)

// The type lists has one map for each pass: from the number of a queue pair to the number of sends
// that the pass posted to it.
type lists []map[uint32]int

func (l *lists) hook(inner verbs.Context, t *verbs.IOBatch) error {
	m := map[uint32]int{}
	for _, g := range t.Sends {
		m[g.QP.Num()] += g.Count
	}
	*l = append(*l, m)
	return inner.Execute(t)
}

// A flood keeps the queue of e full of n-byte WRITEs to peer. Each completion submits another
// WRITE, until the test sets flood.over.
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

// Rule: a request is posted in the first pass after its submission, however many requests other
// queues submit. A pass posts at most one part for each queue. A pass dispatches at most PollBatch
// completions, in the order of the completion queue. In this test the queue of a is flooded, and
// the queue of x submits one request at a time (a trickle).
func TestATrickleIsNotDelayedByAFlood(t *testing.T) {
	onlySoft(t, "a device completes when it likes")
	const depth, batch, trickles = 4 * partRequests, 64, 300
	for name, c := range map[string]struct{ size, every, part, turns int }{
		// The flood signals the last request of each list and one request in 32. So only a few
		// completions of the flood come before the completion of the trickle, and the first pass
		// dispatches them all.
		"small requests": {8, 32, partRequests, 1},
		"large requests": {partBytes / 16, 32, 16, 1},
		// The flood signals every request. So all completions of the flood (depth of them) may come
		// before the completion of the trickle.
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
			// Each dispatched completion of the flood frees a slot for another request of the
			// flood.
			if least := len(turns) * min(c.part, batch) / 2; sum < least {
				t.Errorf("%d turns posted %d of the flood, want at least %d", len(turns), sum, least)
			}
			f.over = true
			for range depth { // each pass completes some requests
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

// Rule: requests that a pass leaves for later passes complete in the order of their submission.
// Each of them completes one time.
func TestWhatATurnHoldsBackKeepsItsOrder(t *testing.T) {
	const depth = 3*partRequests + 7
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth})
	defer b.close(t)
	defer a.close(t)
	var got []uint64
	done := make(chan struct{})
	a.do(t, func() { // meanwhile only Flush runs a pass
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

// Rule: a queue with requests left for the next pass is not idle. If this queue fails and is
// released, the requests that are left, and later requests, are not posted. They end with the cause
// of the failure.
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
			a.do(t, func() { // meanwhile only Flush runs a pass
				post(depth - 10)
				a.r.Flush() // posts partRequests requests
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
