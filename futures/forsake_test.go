package futures

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// rudeEnds are the ways a goroutine leaves what it is in without returning from it.
var rudeEnds = map[string]func(){"panic": func() { panic(errOp) }, "goexit": runtime.Goexit}

// aside calls fn on a goroutine of its own, which may end in fn.
func aside(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		fn()
	}()
	<-done
}

// Rule: when the goroutine of an Await ends in the driver, the future is discarded: its
// result, there or to come, goes to Dispose once.
func TestTheEndOfAnAwaiterDiscards(t *testing.T) {
	for name, end := range rudeEnds {
		for _, settled := range []bool{false, true} {
			var disposed []int
			pool := NewPool(Options[int]{Dispose: func(v int, _ error) { disposed = append(disposed, v) }})
			var p Promise[int]
			p, f := pool.New(driverFunc(func(<-chan struct{}, *Waiter) error {
				if settled {
					p.Settle(7, nil)
				}
				end()
				return nil
			}))
			aside(func() { _, _ = f.Await(context.Background()) })
			p.Settle(7, nil)
			if len(disposed) != 1 || disposed[0] != 7 {
				t.Errorf("%s, settled %v: %v went to Dispose, want [7]", name, settled, disposed)
			}
			if _, err := f.Await(context.Background()); !errors.Is(err, ErrConsumed) {
				t.Errorf("%s, settled %v: Await afterwards: %v, want ErrConsumed", name, settled, err)
			}
		}
	}
}

// rudeContext ends in Done or Err.
type rudeContext struct {
	context.Context
	done, err func()
}

func (c rudeContext) Done() <-chan struct{} { c.done(); return c.Context.Done() }
func (c rudeContext) Err() error            { c.err(); return c.Context.Err() }

// Rule: a context is asked before the future is awaited and after that: if its methods do
// not return, the future and the group are as before. A nil one is refused.
func TestContextsKeepNothing(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	nothing := func() {}
	for name, end := range rudeEnds {
		for _, ctx := range []context.Context{rudeContext{ended, end, nothing}, rudeContext{ended, nothing, end}} {
			p, f := New[int]()
			var g Group
			if err := Add(&g, f); err != nil {
				t.Fatal(err)
			}
			aside(func() { _, _ = f.Await(ctx) })
			aside(func() { _ = g.Wait(ctx) })
			p.Settle(7, nil)
			if err := g.Wait(context.Background()); err != nil {
				t.Errorf("%s: Wait afterwards: %v", name, err)
			}
			if v, err := f.Await(context.Background()); v != 7 || err != nil {
				t.Errorf("%s: Await afterwards: %d, %v", name, v, err)
			}
		}
	}
	var none context.Context
	_, f := New[int]()
	if _, err := f.Await(none); !errors.Is(err, ErrNilContext) {
		t.Errorf("Await(nil): %v, want ErrNilContext", err)
	}
	if err := new(Group).Wait(none); !errors.Is(err, ErrNilContext) {
		t.Errorf("Wait(nil): %v, want ErrNilContext", err)
	}
}
