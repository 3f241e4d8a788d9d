package reactor_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// A queue's part of a pass is the list of sends that the pass posts for this queue. The list has at
// most partRequests sends, and ends earlier with the send that brings it to partBytes (doc.go,
// Fairness).
const (
	partRequests = 256
	partBytes    = 1 << 20
)

// lists has one map for each pass. The key is the number of a queue pair. The value is the number of
// sends that the pass posted to this queue pair.
type lists []map[uint32]int

func (l *lists) hook(inner verbs.Context, t *verbs.IOBatch) error {
	m := map[uint32]int{}
	for _, g := range t.Sends {
		m[g.QP.Num()] += g.Count
	}
	*l = append(*l, m)
	return inner.Execute(t)
}

// flood keeps the queue of e full of n-byte WRITEs to peer. The sink of each WRITE submits another
// WRITE, until the test sets flood.over.
type flood struct {
	e, peer *end
	n       int
	over    bool
	begun   int   // number of submitted WRITEs
	ended   int   // number of ended WRITEs
	bad     error // the first error of a WRITE
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
// the test submits one request at a time to the queue of x (a trickle).
func TestATrickleIsNotDelayedByAFlood(t *testing.T) {
	onlySoft(t, "the test limits the passes until a request completes, but a device may take any number of passes")
	// On virtual time nothing but the test runs the devices. (On real time another goroutine may run them at any
	// moment, for a timer, and a pass then finds its completion in the next one.) After each pass the devices
	// do all their work, so that a completion is there for the pass after the one that posts.
	const depth, batch, trickles = 4 * partRequests, 64, 300
	// For the flood, each case has the bytes of a request, SignalEvery, and the most requests that a
	// pass may post. For the trickle, it has the most passes until a request completes.
	for name, c := range map[string]struct{ size, every, part, passes int }{
		// The flood signals the last request of each list and one request in 32. So only a few
		// completions of the flood come before the completion of the trickle, and the second pass
		// dispatches them all.
		"small requests": {8, 32, partRequests, 2},
		"large requests": {partBytes / 16, 32, 16, 2},
		// The flood signals every request. It has up to depth requests outstanding, and the completions of
		// all of them may come before the completion of the trickle.
		"every request signaled": {8, 1, partRequests, 2 + depth/batch},
	} {
		t.Run(name, func(t *testing.T) {
			var passes lists
			fab := fabric.New(fabric.Config{Virtual: true})
			var h *hooked
			a, b := bedOf(t, fab).pair(t, reactor.Config{Stepped: true, PollBatch: batch}, reactor.QueueConfig{SendDepth: depth, SignalEvery: c.every},
				func(c verbs.Context) verbs.Context { h = &hooked{Context: c}; return h })
			step := func() {
				for a.r.Step(); fab.Step(); {
				}
			}
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
			h.set(passes.hook)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			for k := range trickles {
				for range rnd.IntN(3) {
					step()
				}
				s, p := x.write(y)
				fut := must.Get(x.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
				from := len(passes)
				for !fut.Settled() {
					step()
					if took := len(passes) - from; took > c.passes {
						t.Fatalf("request %d of the trickle is not complete after %d passes, want at most %d", k, took, c.passes)
					}
				}
				if got := passes[from][x.q.QP().Num()]; got != 1 {
					t.Fatalf("the first pass after the submission of request %d of the trickle posted %d requests of its queue, want 1: %v", k, got, passes[from:])
				}
				fut.Discard()
			}
			sum := 0
			for k, m := range passes {
				n := m[a.q.QP().Num()]
				if n > c.part {
					t.Fatalf("pass %d posted %d requests of the flood, want at most %d", k, n, c.part)
				}
				sum += n
			}
			// Each dispatched completion of the flood frees a slot for another request of the
			// flood.
			if least := len(passes) * min(c.part, batch) / 2; sum < least {
				t.Errorf("%d passes posted %d requests of the flood, want at least %d", len(passes), sum, least)
			}
			f.over = true
			for range depth { // each pass completes some requests
				step()
			}
			if f.ended != f.begun {
				t.Errorf("%d requests of the flood ended, want %d", f.ended, f.begun)
			}
			must.Do(t, f.bad)
			if held := a.r.Stats().CarriedOver; held == 0 {
				t.Error("Stats.CarriedOver is 0, want more than 0, because passes left requests of the flood for later passes")
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
	a.do(t, func() { // the turn is held here, so only Flush runs a pass
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
	comes(t, "the completion of the last request", done)
	for i, tag := range got {
		if tag != uint64(i) {
			t.Fatalf("the requests completed in the order %v, want the order of submission", got)
		}
	}
}

// Rule: a queue with requests left for the next pass is not idle. If this queue fails and is
// released, its unposted requests are never posted. They end with the cause of the failure.
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
			a.do(t, func() { // the turn is held here, so only Flush runs a pass
				post(depth - 10)
				a.r.Flush() // posts partRequests requests
				a.q.SendsIdle(func() { idle = true })
				if idle {
					t.Errorf("SendsIdle called its function when only %d of %d requests had ended, want the call after all have ended", ended, depth-10)
				}
				post(10)
				a.q.Fail(errOver)
				if sealed {
					a.q.Seal()
					a.r.Flush()
				}
				a.releaseHeld(t, errOver)
				if !idle || ended != depth || failed < depth-partRequests {
					t.Errorf("after Release idle = %t, %d requests have ended, %d of them with an error; want idle = true, %d and at least %d", idle, ended, failed, depth, depth-partRequests)
				}
			})
			if posted := a.r.Stats().WorkRequests; posted != partRequests {
				t.Errorf("%d requests were posted, want %d", posted, partRequests)
			}
		})
	}
}
