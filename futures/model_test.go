//go:build verbena_model

package futures

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// explore runs a scene: the actors' programs, and a check after all have ended.
func explore(t *testing.T, name string, scene func(act func(name string, body func())) (check func())) {
	t.Helper()
	model.Holds(t, name, func() (w model.World) {
		check := scene(func(name string, body func()) {
			w.Act(name, func() {
				model.Yield("begin")
				body()
			})
		})
		w.End = func(blocked []string) error {
			if len(blocked) > 0 {
				return fmt.Errorf("asleep for ever: %v", blocked)
			}
			check()
			return nil
		}
		return w
	})
}

// parker is a driver that only parks, and counts the turns it was given.
type parker struct{ turns int }

func (p *parker) Drive(done <-chan struct{}, w *Waiter) error {
	for {
		switch w.Park(done) {
		case SignalTurn:
			p.turns++
		case SignalSettled, SignalCancelled:
			return nil
		}
	}
}

// An accepted offer is received exactly once, a settle is never lost, and a canceled wait consumes
// nothing: settle x offer x cancel x park.
func TestModelWaiter(t *testing.T) {
	for _, offers := range []int{1, 2} {
		explore(t, "waiter", func(act func(string, func())) func() {
			d := &parker{}
			p, f := new(Pool[int]).New(d)
			ctx, cancel := context.WithCancel(context.Background())
			var v, accepted int
			var err error
			act("await", func() { v, err = f.Await(ctx) })
			if offers == 1 { // the second offerer replaces the settler, to keep the scene small
				act("settle", func() { p.Settle(7, nil) })
			}
			for range offers {
				act("offer", func() {
					if f.cell.Offer() {
						accepted++
					}
				})
			}
			act("cancel", func() { model.Yield("cancel"); cancel() })
			return func() {
				if d.turns != accepted {
					model.Failf("%d offers accepted, %d turns received", accepted, d.turns)
				}
				if offers == 2 {
					p.Settle(7, nil)
				}
				if errors.Is(err, context.Canceled) {
					var ok bool
					if v, err, ok = f.Poll(); !ok {
						model.Failf("Poll after a cancelled Await and a settle: not there")
					}
				}
				if v != 7 || err != nil {
					model.Failf("result = %d, %v; want 7, nil", v, err)
				}
				if w := f.cell.word.Load(); w != nextGeneration(0) || len(f.cell.wake) != 0 {
					model.Failf("word %#x, %d signals left; want a fresh cell", w, len(f.cell.wake))
				}
			}
		})
	}
}

// A turn that several waiters take, drive, pass on and release is never lost: no waiter sleeps
// forever, even if a waiter is canceled while it has the turn or is offered it.
func TestModelTurn(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		explore(t, "turn", func(act func(string, func())) func() {
			d := &turn{}
			var got [2]int
			ctx, cancel := context.WithCancel(context.Background())
			ctxs := [2]context.Context{ctx, context.Background()} // only the first is ever canceled
			for i := range got {
				p, f := New[int]()
				f.cell.driver = d
				d.jobs = append(d.jobs, func() { p.Settle(i+1, nil) })
				act("await", func() {
					var err error
					if got[i], err = f.Await(ctxs[i]); err != nil && (i != 0 || err != context.Canceled) {
						model.Failf("Await %d: %v", i, err)
					}
				})
			}
			if cancelled {
				act("cancel", func() { model.Yield("cancel"); cancel() })
			}
			return func() {
				cancel()
				if got[1] != 2 || got[0] != 1 && !cancelled {
					model.Failf("results %v, want [1 2]", got)
				}
				if d.held.Load() {
					model.Failf("the turn is held by nobody")
				}
			}
		})
	}
}

// Of two settles one is the first, and of two polls at most one takes the stored result.
func TestModelSettleOnce(t *testing.T) {
	explore(t, "settle once", func(act func(string, func())) func() {
		p, f := New[int]()
		var first [2]bool
		var took []int
		for i := range first {
			act("settle", func() { first[i] = p.Settle(i, nil) })
		}
		poll := func() {
			if v, err, ok := f.Poll(); ok && err == nil {
				took = append(took, v)
			}
		}
		act("poll", poll)
		act("poll", poll)
		return func() {
			poll()
			if first[0] == first[1] {
				model.Failf("Settle = %v: want exactly one true", first)
			}
			if len(took) != 1 || !first[took[0]] {
				model.Failf("taken %v; want once, from the first settle %v", took, first)
			}
		}
	})
}

// A result is either taken or disposed of, however Await, its canceling and Discard interleave.
func TestModelDiscard(t *testing.T) {
	explore(t, "discard", func(act func(string, func())) func() {
		disposed, taken := 0, 0
		pool := &Pool[int]{opt: Options[int]{Dispose: func(int, error) { disposed++ }}}
		p, f := pool.New(nil)
		ctx, cancel := context.WithCancel(context.Background())
		act("await", func() {
			if _, err := f.Await(ctx); err == nil {
				taken++
			}
		})
		act("settle", func() { p.Settle(7, nil) })
		act("discard", func() { f.Discard() })
		act("cancel", func() { model.Yield("cancel"); cancel() })
		return func() {
			if taken+disposed != 1 {
				model.Failf("taken %d, disposed of %d times: want one of them, once", taken, disposed)
			}
		}
	})
}

// Attaching from several goroutines while the promise settles: the channel closes, the group counts
// the settle, and the result is taken once.
func TestModelAttach(t *testing.T) {
	explore(t, "done, then", func(act func(string, func())) func() {
		p, f := New[int]()
		var done <-chan struct{}
		var got []int
		act("done", func() { done = f.Done() })
		act("then", func() { f.Then(func(v int, err error) { got = append(got, v) }) })
		act("settle", func() { p.Settle(7, nil) })
		return func() {
			select {
			case <-done:
			default:
				model.Failf("settled, but the Done channel is open")
			}
			if len(got) != 1 || got[0] != 7 {
				model.Failf("callback got %v, want [7]", got)
			}
		}
	})
	explore(t, "add, poll", func(act func(string, func())) func() {
		p, f := New[int]()
		var g Group
		var addErr error
		var ok bool
		act("add", func() { addErr = Add(&g, f) })
		act("settle", func() { p.Settle(7, nil) })
		act("poll", func() { _, _, ok = f.Poll() })
		return func() {
			if addErr != nil && (!ok || addErr != ErrConsumed) {
				model.Failf("Add = %v with a Poll that returned %v", addErr, ok)
			}
			if n := g.left.Load() + g.added; n != 0 {
				model.Failf("group counts %d futures, all are settled", n)
			}
		}
	})
	explore(t, "then, await", func(act func(string, func())) func() {
		p, f := New[int]()
		var awaited, called error
		calls := 0
		act("then", func() { f.Then(func(v int, err error) { calls++; called = err }) })
		act("await", func() { _, awaited = f.Await(context.Background()) })
		act("settle", func() { p.Settle(7, nil) })
		return func() {
			if calls != 1 || (awaited == nil) == (called == nil) {
				model.Failf("%d calls with %v, Await = %v: want one call and one result", calls, called, awaited)
			}
		}
	})
}

// A Wait that is canceled and repeated ends when all are settled, and leaves a group that can be
// used again.
func TestModelGroup(t *testing.T) {
	explore(t, "group", func(act func(string, func())) func() {
		var g Group
		var ps [2]Promise[int]
		var fs [2]Future[int]
		for i := range ps {
			ps[i], fs[i] = New[int]()
			if err := Add(&g, fs[i]); err != nil {
				model.Failf("Add: %v", err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		act("wait", func() {
			err := g.Wait(ctx)
			if err == nil && (!fs[0].Settled() || !fs[1].Settled()) {
				model.Failf("Wait returned with unsettled futures")
			}
			if err != nil && g.Wait(context.Background()) != nil {
				model.Failf("second Wait failed")
			}
		})
		act("settle", func() { ps[0].Settle(0, nil); model.Yield("cancel"); cancel() })
		act("settle", func() { ps[1].Settle(1, nil) })
		return func() {
			if n, w := g.left.Load()+g.added, g.word.Load(); n != 0 || w&flagMask != 0 || len(g.wake) != 0 {
				model.Failf("left %d, word %#x, %d signals: want a group at rest", n, w, len(g.wake))
			}
		}
	})
}

// An old handle used after its cell belongs to another operation changes nothing there and returns
// nothing of it.
func TestModelStale(t *testing.T) {
	explore(t, "stale", func(act func(string, func())) func() {
		p, f := New[int]()
		second := 0
		act("owner", func() {
			if v, err := f.Await(context.Background()); err != nil && err != ErrConsumed || err == nil && v != 1 {
				model.Failf("first result %d, %v; want 1", v, err)
			}
			gen := f.cell.word.Load() // as Pool.New does with a cell that was put back
			p2, f2 := Promise[int]{f.cell, gen}, Future[int]{f.cell, gen}
			p2.Settle(2, nil)
			v, err, ok := f2.Poll()
			if second = v; v != 2 || err != nil || !ok {
				model.Failf("second result %d, %v, %v; want 2", v, err, ok)
			}
		})
		act("settle", func() { p.Settle(1, nil); p.Settle(9, nil) })
		act("poll", func() {
			if v, err, ok := f.Poll(); ok && err == nil && v != 1 {
				model.Failf("an old handle polled %d", v)
			}
		})
		return func() {
			if second != 2 {
				model.Failf("second result %d, want 2", second)
			}
		}
	})
}

// A CellSlot makes its next operation while the last one's result is filled in, published, taken,
// and attached to: each is settled once and gives its own result, and two operations never share a
// cell.
func TestModelSeat(t *testing.T) {
	defer func(was bool) { careful = was }(careful)
	for i, taker := range []string{"await", "poll", "discard", "then", "await", "poll", "discard", "then"} {
		careful = i < 4
		explore(t, fmt.Sprintf("seat, %s, careful %t", taker, careful), func(act func(string, func())) func() {
			pool := NewPool(Options[int]{})
			var seat CellSlot[int]
			p, f := pool.NewIn(&seat, nil)
			got, over := 0, false
			act("settle", func() {
				if !p.Fill(7, nil) {
					model.Failf("the first Fill is refused")
				}
				p.Publish()
			})
			act(taker, func() {
				switch taker {
				case "await":
					got, _ = f.Await(context.Background())
					over = true
				case "poll":
					got, _, over = f.Poll()
				case "discard":
					f.Discard()
					got, over = 7, true
				case "then":
					f.Then(func(v int, _ error) { got = v })
					over = true
				}
			})
			var next Future[int]
			act("again", func() {
				var q Promise[int]
				q, next = pool.NewIn(&seat, nil)
				if !q.Fill(8, nil) {
					model.Failf("the Fill of the next operation is refused")
				}
				q.Publish()
			})
			return func() {
				if !over {
					got, _, over = f.Poll()
				}
				if v, err, ok := next.Poll(); got != 7 || !over || v != 8 || err != nil || !ok {
					model.Failf("results %d and %d, want 7 and 8", got, v)
				}
				if w := seat.cell.word.Load(); w&flagMask != bitInSlot {
					model.Failf("word %#x of the seat's cell, want it free", w)
				}
			}
		})
	}
}
