package futures

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Rule: for any sequence of calls on the futures of a CellSlot, each gives the result of its own
// operation, once; and the slot keeps its cell if the last result was taken before the next
// operation is made.
func TestSeatAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := NewPool(Options[int]{})
		var seat CellSlot[int]
		type op struct {
			p       Promise[int]
			f       Future[int]
			v       int
			settled bool
		}
		var live []*op
		made, free := 0, false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			what := rapid.IntRange(0, 5).Draw(t, "what")
			if what == 0 || len(live) == 0 {
				made++
				o := &op{v: made}
				before := seat.cell
				o.p, o.f = pool.NewIn(&seat, nil)
				if free && seat.cell != before {
					t.Fatal("the last result was taken, and the seat has another cell all the same")
				}
				live, free = append(live, o), false
				continue
			}
			at := rapid.IntRange(0, len(live)-1).Draw(t, "which")
			o := live[at]
			gone := false
			switch what {
			case 1:
				if ok := o.p.Fill(o.v, nil); ok == o.settled {
					t.Fatalf("Fill of operation %d is %v, settled %v", o.v, ok, o.settled)
				} else if ok {
					o.p.Publish()
				}
				o.settled = true
			case 2:
				if ok := o.p.Settle(o.v, nil); ok == o.settled {
					t.Fatalf("Settle of operation %d is %v, settled %v", o.v, ok, o.settled)
				}
				o.settled = true
			case 3:
				v, err, ok := o.f.Poll()
				if ok != o.settled || ok && (v != o.v || err != nil) {
					t.Fatalf("Poll of operation %d is %d, %v, %v, settled %v", o.v, v, err, ok, o.settled)
				}
				gone = ok
			case 4:
				if !o.settled {
					continue
				}
				o.f.Discard()
				gone = true
			case 5:
				var got int
				if !o.settled {
					o.f.Then(func(v int, _ error) { got = v })
					o.p.Fill(o.v, nil)
					o.p.Publish()
				} else {
					o.f.Then(func(v int, _ error) { got = v })
				}
				if got != o.v {
					t.Fatalf("Then of operation %d got %d", o.v, got)
				}
				gone = true
			}
			if gone {
				free = free || at == len(live)-1 && o.v == made
				live = append(live[:at], live[at+1:]...)
				if o.p.Fill(0, nil) || o.f.Valid() {
					t.Fatal("a handle whose result was taken is good for more")
				}
			}
		}
	})
}

// Rule: a goroutine that takes a result while the slot makes its next operation gets it whole. The
// result has several words, so that the race detector and the test see a cell that is reused too
// early.
func TestSeatIsTakenWhileUsedAgain(t *testing.T) {
	type wide [6]int
	const rounds = 30_000
	pool := NewPool(Options[wide]{})
	var seat CellSlot[wide]
	results := make(chan Future[wide], 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		want := 0
		for f := range results {
			want++
			if v, err := f.Await(context.Background()); err != nil || v != (wide{want, want, want, want, want, want}) {
				t.Errorf("operation %d gave %v, %v", want, v, err)
			}
		}
	})
	for i := 1; i <= rounds && !t.Failed(); i++ {
		p, f := pool.NewIn(&seat, nil)
		if i%3 == 0 {
			results <- f
			p.Fill(wide{i, i, i, i, i, i}, nil)
			p.Publish()
		} else {
			p.Fill(wide{i, i, i, i, i, i}, nil)
			p.Publish()
			results <- f
		}
		if i%7 == 0 {
			runtime.Gosched()
		}
	}
	close(results)
	wg.Wait()
}
