package reactor_test

import (
	"context"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

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
					t.Errorf("the first write: %v", err)
				}
				if err := a.r.Do(ctx, func() {}); err != nil {
					t.Errorf("Do in a callback: %v", err)
				}
				for i := range 3 { // SendDepth is 1: each WRITE waits until the previous WRITE frees the slot
					f, err := a.q.Submit(ctx, s, &p, reactor.Block)
					if err != nil {
						t.Errorf("write %d in a callback: %v", i, err)
						return
					}
					if i < 2 {
						f.Discard()
						continue
					}
					if _, err := f.Await(ctx); err != nil {
						t.Errorf("await in a callback: %v", err)
					}
				}
			})
			comes(t, "the callback", done)
		})
	}
}

// Rule: the reactor handles events while a callback runs. So a callback may await a result that
// needs an event.
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
				t.Errorf("await in a callback: %v", err)
			}
		})
	}
}

// The constant later is long enough for every goroutine to fall asleep. If a goroutine is still
// awake after that time, the test covers less.
const later = 20 * time.Millisecond

// receiveLater posts a receive when 20 ms have passed.
func (e *end) receiveLater(t testing.TB) {
	e.r.After(later, func() {
		_, in := e.bytes(0, 64)
		if err := e.q.PostRecv(&reactor.Recv{Sink: called(func(reactor.Completion, error) {})}, []verbs.SGE{in}, reactor.Block); err != nil {
			t.Errorf("the receive: %v", err)
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
				t.Errorf("a write while a callback blocks: %v", err)
			}
			out := a.stray(t, reactor.Send{})
			b.receiveLater(t)
			if _, err := out.Await(ctx); err != nil {
				t.Errorf("a send that needs an event while a callback blocks: %v", err)
			}
			timer := make(chan struct{})
			a.r.After(time.Millisecond, func() { close(timer) })
			comes(t, "a timer while a callback blocks", timer)
			if err := a.r.Do(ctx, func() {}); err != nil {
				t.Errorf("Do while a callback blocks: %v", err)
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
			t.Fatalf("callback %d ran in place %d", got, i)
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
			t.Errorf("Do in a callback: %v", err)
		}
	})
	if ran != 0 {
		t.Fatal("the callback ran before Step")
	}
	if !l.r.Step() || ran != 1 {
		t.Fatalf("Step ran %d callbacks of 1", ran)
	}
	if l.r.Step() {
		t.Error("a Step with nothing to do says that it did something")
	}
}

// Rule: Queue calls the function of a Job once. The Job may be queued again when its function has
// begun to run.
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
