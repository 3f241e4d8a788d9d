package futures

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain fails the run if tests leak a goroutine.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	for limit := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(limit) {
			stacks := make([]byte, 1<<16)
			println("goroutines left behind:\n" + string(stacks[:runtime.Stack(stacks, true)]))
			os.Exit(1)
		}
	}
	os.Exit(code)
}

// rounds returns how many operations a stress test does: enough for some hundred milliseconds under
// the race detector.
func rounds() int {
	if testing.Short() {
		return 5_000
	}
	return 50_000
}

// pair is an operation whose value is its own number.
type pair struct {
	p  Promise[uint64]
	f  Future[uint64]
	id uint64
}

// Three goroutines use every handle at once, and long after its memory has other owners: each
// operation is settled once and its result taken or disposed of once, and no goroutine ever sees
// another operation's number.
func TestStressReuse(t *testing.T) {
	const users = 3
	var disposed, taken, settles, next atomic.Uint64
	pool := NewPool(Options[uint64]{Dispose: func(uint64, error) { disposed.Add(1) }})
	n := uint64(rounds())
	seed := rand.Uint64()
	t.Logf("seed %d (of the choices; the schedule is the machine's)", seed)
	var shared [64]atomic.Pointer[pair] // recent operations, most of them consumed
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(u)))
			check := func(p *pair, v uint64, err error) {
				switch {
				case err == nil && v != p.id:
					t.Errorf("a handle of operation %d got the result of %d", p.id, v)
				case err == nil:
					taken.Add(1)
				case err == ErrConsumed, err == ErrDiscarded, err == ErrAwaited, err == context.Canceled:
				default:
					t.Errorf("operation %d: %v", p.id, err)
				}
			}
			dead := ended()
			use := func(p *pair) {
				switch rng.IntN(8) {
				case 0:
					p.f.Discard()
				case 1, 2:
					if v, err, ok := p.f.Poll(); ok {
						check(p, v, err)
					}
				case 3:
					v, err := p.f.Await(dead)
					check(p, v, err)
				case 4:
					p.f.Then(func(v uint64, err error) { check(p, v, err) })
				case 5:
					p.f.Done()
				default:
					if p.p.Settle(p.id, nil) {
						settles.Add(1)
					}
				}
			}
			for {
				id := next.Add(1)
				if id > n {
					return
				}
				p := &pair{id: id}
				p.p, p.f = pool.New(nil)
				old := shared[id%64].Swap(p)
				for range 4 {
					if q := shared[rng.IntN(64)].Load(); q != nil {
						use(q)
					}
				}
				if old != nil { // end it, in any state
					if old.p.Settle(old.id, nil) {
						settles.Add(1)
					}
					old.f.Discard()
				}
			}
		})
	}
	wg.Wait()
	for i := range shared {
		if p := shared[i].Load(); p != nil {
			if p.p.Settle(p.id, nil) {
				settles.Add(1)
			}
			p.f.Discard()
		}
	}
	if settles.Load() != n || taken.Load()+disposed.Load() != n {
		t.Errorf("%d operations: %d first settles, %d taken, %d disposed of", n, settles.Load(), taken.Load(), disposed.Load())
	}
}

// Waiters share a turn, and some of them give up: every operation settles, no waiter stays asleep,
// and in the end the turn is free.
func TestStressDriver(t *testing.T) {
	d := &turn{}
	pool := NewPool(Options[int]{})
	var cancelled atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var g Group
			for i := range rounds() / 4 {
				p, f := pool.New(d)
				ctx, cancel := context.WithCancel(context.Background())
				if i%4 == 1 {
					d.post(cancel) // done by the driver, while this goroutine waits or drives itself
				}
				d.post(func() {
					if i%8 == 0 {
						runtime.Gosched() // the turn is held: let the others park
					}
					p.Settle(i, nil)
				})
				if i%3 == 0 {
					if err := Add(&g, f); err != nil {
						t.Error(err)
					}
					for err := g.Wait(ctx); err != nil; err = g.Wait(context.Background()) {
						cancelled.Add(1)
					}
				}
				v, err := f.Await(ctx)
				if errors.Is(err, context.Canceled) {
					cancelled.Add(1)
					v, err = f.Await(context.Background())
				}
				if v != i || err != nil {
					t.Errorf("result %d, %v; want %d", v, err, i)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if d.held.Load() {
		t.Error("the turn is held by nobody")
	}
	if d.offers == 0 || cancelled.Load() == 0 {
		t.Error("no offer or no cancelled wait: the stress did not stress")
	}
	t.Logf("%d offers accepted, %d waits cancelled", d.offers, cancelled.Load())
}

// Other goroutines settle and so wake parked waiters while contexts end: nothing is lost.
func TestStressPark(t *testing.T) {
	pool := NewPool(Options[int]{})
	work := make(chan Promise[int], 8)
	cancels := make(chan context.CancelFunc, 8)
	var wg, helpers sync.WaitGroup
	for range 2 {
		helpers.Go(func() {
			for p := range work {
				p.Settle(1, nil)
			}
		})
	}
	helpers.Go(func() {
		for cancel := range cancels {
			cancel()
		}
	})
	for range 3 {
		wg.Go(func() {
			var g Group
			fs := make([]Future[int], 4)
			for i := range rounds() / 16 {
				ctx, cancel := context.WithCancel(context.Background())
				for j := range fs {
					var p Promise[int]
					p, fs[j] = pool.New(nil)
					if err := Add(&g, fs[j]); err != nil {
						t.Error(err)
					}
					work <- p
				}
				if i%2 == 0 {
					cancels <- cancel
				}
				if err := g.Wait(ctx); err != nil {
					if err := g.Wait(context.Background()); err != nil {
						t.Error(err)
					}
				}
				for j := range fs {
					if v, err, ok := fs[j].Poll(); v != 1 || err != nil || !ok {
						t.Errorf("Poll after Wait = %d, %v, %v", v, err, ok)
					}
				}
				p, f := pool.New(nil)
				work <- p
				for _, err := f.Await(ctx); err != nil; _, err = f.Await(context.Background()) {
					if err != context.Canceled {
						t.Errorf("Await: %v", err)
						break
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	close(work)
	close(cancels)
	helpers.Wait()
}
