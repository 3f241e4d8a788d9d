//go:build !race

package futures

import (
	"context"
	"runtime"
	"testing"
)

// Under the race detector sync.Pool drops a quarter of the values put back, on purpose: hence the
// build constraint.

func TestNoAllocations(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool := NewPool(Options[[4]int]{})
	var g Group
	var ps [128]Promise[[4]int]
	var fs [128]Future[[4]int]
	d := driverFunc(func(<-chan struct{}, *Waiter) error { ps[0].Settle([4]int{}, nil); return nil })
	// The other side of the parking cases: settles each promise once the waiter is parked.
	parked := make(chan Promise[[4]int], 1)
	go func() {
		for p := range parked {
			for p.cell.word.Load()&bitParked == 0 {
				runtime.Gosched()
			}
			p.Settle([4]int{}, nil)
		}
	}()
	defer close(parked)
	last := make(chan struct{}, 1)
	go func() {
		for range last {
			for i := range ps {
				ps[i].Settle([4]int{}, nil)
			}
		}
	}()
	defer close(last)
	for name, run := range map[string]func(){
		"New, Settle, Poll": func() {
			p, f := pool.New(nil)
			p.Settle([4]int{}, nil)
			f.Poll()
		},
		"New, Settle, Await": func() {
			p, f := pool.New(nil)
			p.Settle([4]int{}, nil)
			f.Await(ctx)
		},
		"Await that parks": func() {
			p, f := pool.New(nil)
			parked <- p
			f.Await(ctx)
		},
		"Await that drives": func() {
			ps[0], fs[0] = pool.New(d)
			fs[0].Await(ctx)
		},
		"Discard": func() {
			p, f := pool.New(nil)
			f.Discard()
			p.Settle([4]int{}, nil)
		},
		"Group.Wait of 128": func() {
			for i := range ps {
				ps[i], fs[i] = pool.New(nil)
				Add(&g, fs[i])
			}
			last <- struct{}{}
			if err := g.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			for i := range fs {
				if _, err, ok := fs[i].Poll(); err != nil || !ok {
					t.Fatalf("future %d: %v, %v", i, err, ok)
				}
			}
		},
	} {
		for range 200 { // reach the steady state: cells made, each parked in once
			run()
		}
		if n := testing.AllocsPerRun(2000, run); n != 0 {
			t.Errorf("%s: %v allocations per run, want 0", name, n)
		}
	}
}

// Rule: a CellSlot allocates nothing, whether results are taken in time or not.
func TestSeatAllocatesNothing(t *testing.T) {
	for name, behind := range map[string]int{"taken before the next": 0, "taken three later": 3} {
		t.Run(name, func(t *testing.T) {
			pool := NewPool(Options[int]{})
			var seat CellSlot[int]
			var under []Future[int]
			n := testing.AllocsPerRun(1000, func() {
				p, f := pool.NewIn(&seat, nil)
				p.Fill(1, nil)
				p.Publish()
				if under = append(under, f); len(under) > behind {
					under[0].Poll()
					under = under[:copy(under, under[1:])]
				}
			})
			if n != 0 {
				t.Errorf("%v allocations per operation, want 0", n)
			}
		})
	}
}
