package reactor_test

import (
	"context"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// manners has a configuration for each way to run passes. With "driving", goroutines that await a
// result run passes, too. With "loop only", only the loop runs passes.
var manners = map[string]reactor.Config{"driving": {}, "loop only": {NoCallerDriving: true}}

// Rule: a callback of a future may use the reactor like any other goroutine. It may call Do, wait
// for a slot, and await a future.
func TestCallbacksMayWait(t *testing.T) {
	for name, cfg := range manners {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, cfg, reactor.QueueConfig{SendDepth: 1})
			defer b.close(t)
			defer a.close(t)
			ctx := bounded(t)
			s, p := a.write(b)
			first := must.Get(a.q.Submit(ctx, s, &p, reactor.Block))(t)
			done := make(chan struct{})
			first.Then(func(_ reactor.Completion, err error) {
				defer close(done)
				if err != nil {
					t.Errorf("the first WRITE ended with %v, want success", err)
				}
				if err := a.r.Do(ctx, func() {}); err != nil {
					t.Errorf("Do in a callback returned %v, want nil", err)
				}
				for i := range 3 { // SendDepth is 1: each WRITE waits until the previous WRITE frees the slot
					f, err := a.q.Submit(ctx, s, &p, reactor.Block)
					if err != nil {
						t.Errorf("Submit of WRITE %d in a callback returned %v, want nil", i, err)
						return
					}
					if i < 2 {
						f.Discard()
						continue
					}
					if _, err := f.Await(ctx); err != nil {
						t.Errorf("the last WRITE of a callback ended with %v, want success", err)
					}
				}
			})
			comes(t, "the callback", done)
		})
	}
}

// Rule: while a callback runs, the reactor handles completion events. So a callback may await an
// operation whose completion the reactor finds only through an event.
func TestAwaitInACallbackHearsOfEvents(t *testing.T) {
	for name, cfg := range manners {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, cfg, reactor.QueueConfig{})
			defer b.close(t)
			defer a.close(t)
			out := a.stray(t, reactor.Send{})
			result := make(chan error, 1)
			ctx := bounded(t)
			a.r.Callback(func() { _, err := out.Await(ctx); result <- err })
			b.receiveLater(t)
			if err := comes(t, "the callback", result); err != nil {
				t.Errorf("a SEND awaited in a callback ended with %v, want success", err)
			}
		})
	}
}

// later is the delay of receiveLater. Before it ends, the loops have gone to sleep and the waiting
// goroutines have parked. So only a completion event can wake the loop. On a slow machine a goroutine
// may still run passes at the end of the delay. The test then passes, but does not test the wake-up.
const later = 20 * time.Millisecond

// receiveLater starts a timer of 20 ms, which posts a receive on the end's queue.
func (e *end) receiveLater(t testing.TB) {
	e.r.After(later, func() {
		_, in := e.bytes(0, 64)
		if err := e.q.PostRecv(&reactor.Recv{Sink: called(func(reactor.Completion, error) {})}, []verbs.SGE{in}, reactor.Block); err != nil {
			t.Errorf("PostRecv in a timer returned %v, want nil", err)
		}
	})
}

// Rule: a callback that blocks delays other callbacks. It does not delay operations, timers, or
// functions given to Do.
func TestABlockedCallbackDelaysNoOperation(t *testing.T) {
	for name, cfg := range manners {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, cfg, reactor.QueueConfig{})
			defer b.close(t)
			defer a.close(t)
			ctx := bounded(t)
			s, p := a.write(b)
			first := must.Get(a.q.Submit(ctx, s, &p, reactor.Block))(t)
			running, leave := make(chan struct{}), make(chan struct{})
			defer close(leave)
			first.Then(func(reactor.Completion, error) { close(running); <-leave })
			comes(t, "the callback", running)
			f := must.Get(a.q.Submit(ctx, s, &p, reactor.Block))(t)
			if _, err := f.Await(ctx); err != nil {
				t.Errorf("a WRITE while a callback blocks ended with %v, want success", err)
			}
			out := a.stray(t, reactor.Send{})
			b.receiveLater(t)
			if _, err := out.Await(ctx); err != nil {
				t.Errorf("a SEND that needs a completion event, while a callback blocks, ended with %v, want success", err)
			}
			timer := make(chan struct{})
			a.r.After(time.Millisecond, func() { close(timer) })
			comes(t, "a timer while a callback blocks", timer)
			if err := a.r.Do(ctx, func() {}); err != nil {
				t.Errorf("Do while a callback blocks returned %v, want nil", err)
			}
		})
	}
}

// Rule: callbacks run in the order of the Callback calls.
func TestCallbacksKeepTheirOrder(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	const n = 1000
	order := make(chan int, n)
	for i := range n {
		l.r.Callback(func() { order <- i })
	}
	for i := range n {
		if got := comes(t, "a callback", order); got != i {
			t.Fatalf("callback %d ran at position %d, want callback %d there", got, i, i)
		}
	}
	l.close(t)
}

// Rule: a stepped reactor runs callbacks in Step. Step does not hold the turn meanwhile, so a
// callback may call Do.
func TestSteppedCallbacksRunInStep(t *testing.T) {
	l := newLone(t, reactor.Config{Stepped: true}, nil)
	defer l.close(t)
	ran := 0
	l.r.Callback(func() {
		if err := l.r.Do(context.Background(), func() { ran++ }); err != nil {
			t.Errorf("Do in a callback returned %v, want nil", err)
		}
	})
	if ran != 0 {
		t.Fatal("the callback ran before Step")
	}
	if did := l.r.Step(); !did || ran != 1 {
		t.Fatalf("Step returned %t and ran %d callbacks, want true and 1", did, ran)
	}
	if l.r.Step() {
		t.Error("Step returned true with nothing to do, want false")
	}
}

// Rule: each call of Reactor.Queue with a Job causes one call of the Job's function. As soon as this
// function has begun to run, the Job may be queued again.
func TestAJobIsQueuedAgain(t *testing.T) {
	l := newLone(t, reactor.Config{Stepped: true}, nil)
	defer l.close(t)
	const n = 3
	var j *reactor.Job
	ran := 0
	j = reactor.NewJob(func() {
		if ran++; ran < n {
			l.r.Queue(j)
		}
	})
	l.r.Queue(j)
	for l.r.Step() {
	}
	if ran != n {
		t.Errorf("the function was called %d times, want %d", ran, n)
	}
}
