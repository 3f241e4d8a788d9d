//go:build !verbena_model

package turn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// Rule: each operation is settled exactly one time, and each waiter gets the result of its own
// operation. If the environment variable TURN_SEED has the seed of an earlier run, the callers choose
// the same operations as in that run, but the goroutines may run in another order.
func TestStress(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("TURN_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("TURN_SEED=%d", seed)
	for _, c := range []struct {
		name    string
		cfg     Config
		device  bool // the device has a goroutine of its own
		ops     int
		callers int // with one caller, no other caller can hide a lost wake-up
		// If control is set, a goroutine takes the turn now and then. This goroutine could also
		// hide a lost wake-up, so only some cases set control.
		control bool
	}{
		{"driving, device", Config{CallerDriving: true}, true, 200_000, 16, true},
		{"driving, device, spinning", Config{CallerDriving: true, Spin: 20}, true, 50_000, 16, false},
		{"driving, completed at once", Config{CallerDriving: true}, false, 50_000, 16, false},
		{"no driving, device", Config{}, true, 50_000, 16, false},
		{"no driving, completed at once", Config{Spin: 5}, false, 50_000, 16, true},
		{"one caller, driving", Config{CallerDriving: true}, true, 20_000, 1, false},
		{"one caller, no driving, completed at once", Config{}, false, 50_000, 1, false},
		{"SpinTimed, driving, device", Config{CallerDriving: true, SpinMode: SpinTimed, Budget: NewBudget(10 * time.Microsecond)}, true, 50_000, 16, false},
		{"SpinTimed, one caller, device", Config{CallerDriving: true, SpinMode: SpinTimed, Budget: NewBudget(time.Microsecond)}, true, 20_000, 1, false},
		{"SpinTimed, no driving, device", Config{SpinMode: SpinTimed, Budget: NewBudget(10 * time.Microsecond)}, true, 50_000, 16, true},
		{"SpinAlways, driving, device", Config{CallerDriving: true, SpinMode: SpinAlways}, true, 20_000, 16, true},
		{"SpinAlways, no driving, completed at once", Config{SpinMode: SpinAlways}, false, 20_000, 16, false},
	} {
		t.Run(c.name, func(t *testing.T) { stress(t, newEcho(t, c.cfg, c.device), c.ops, c.callers, c.control, seed) })
	}
}

func stress(t *testing.T, e *echo, ops, n int, control bool, seed uint64) {
	var disposed, awaited, commands atomic.Int64
	e.pool = futures.NewPool(futures.Options[uint64]{Dispose: func(uint64, error) { disposed.Add(1) }})
	var callers, others sync.WaitGroup
	done := make(chan struct{})
	for i := range n {
		callers.Go(func() {
			c := caller{e: e, rng: rand.New(rand.NewPCG(seed, uint64(i))), name: uint64(i), awaited: &awaited, commands: &commands}
			for left := ops / n; left > 0; {
				made, err := c.some(min(left, 4))
				if err != nil {
					t.Errorf("caller %d: an operation ended with %v, want success", i, err)
					return
				}
				left -= made
			}
		})
	}
	controls := 0
	others.Go(func() {
		for control {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Microsecond): // now and then; the exact time does not matter
				e.tok.WithTurn(func() { e.inTurn++; controls++ })
			}
		}
	})
	callers.Wait()
	close(done)
	others.Wait()
	// Discarded operations may still be outstanding. Operations complete in the order of submission. So
	// when the following operation has completed, all others have completed, too. Loop tasks may still be
	// pending.
	if _, err := e.push(new(job), 0, false).Await(context.Background()); err != nil {
		t.Errorf("the last operation ended with %v, want success", err)
	}
	awaited.Add(1)
	for want, ran := commands.Load(), int64(0); ran != want; runtime.Gosched() {
		e.tok.WithTurn(func() { ran = e.ran })
		if ran > want {
			t.Fatalf("%d loop tasks were run, want %d", ran, want)
		}
	}
	e.tok.WithTurn(func() {
		if got := int(awaited.Load() + disposed.Load()); e.settled != ops+1 || e.refused != 0 || got != ops+1 {
			t.Errorf("of %d operations %d were settled, %d of them more than once, and %d results were awaited or discarded; want all, 0 and all", ops+1, e.settled, e.refused, got)
		}
	})
	e.close(t)
	s := e.tok.Stats()
	t.Logf("%d wake-ups, %d drives, %d offers, %d handoffs to the loop, %d handoffs in %d calls of WithTurn, %d sleeps", s.Wakeups.Load(), s.Drives.Load(), s.Offers.Load(),
		s.LoopHandoffs.Load(), s.CallerHandoffs.Load(), controls, s.Sleeps.Load())
}

// caller is a goroutine that submits operations and loop tasks. The value of an operation contains the
// number of the caller (name) and of the operation (serial).
type caller struct {
	e                 *echo
	rng               *rand.Rand
	name, serial      uint64
	awaited, commands *atomic.Int64
}

// some submits up to n operations and returns how many it submitted.
func (c *caller) some(n int) (int, error) {
	switch c.rng.IntN(10) {
	default: // synchronous
		return 1, c.await(context.Background(), c.push(true), c.serial)
	case 0, 1: // several operations, then wait for each
		var fs [4]futures.Future[uint64]
		first := c.serial + 1
		for i := range n {
			fs[i] = c.push(false)
		}
		for i := range n {
			if err := c.await(context.Background(), fs[i], first+uint64(i)); err != nil {
				return 0, err
			}
		}
		return n, nil
	case 2: // canceled while waiting
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		f := c.push(c.rng.IntN(2) == 0)
		err := c.await(ctx, f, c.serial)
		if !errors.Is(err, context.Canceled) {
			return 1, err
		}
		if c.rng.IntN(2) == 0 {
			f.Discard()
			return 1, nil
		}
		return 1, c.await(context.Background(), f, c.serial)
	case 3: // an operation without a waiter, and a loop task
		c.push(false).Discard()
		c.commands.Add(1)
		c.e.calls.Add(1)
		c.e.tok.Submitted()
		return 1, nil
	}
}

func (c *caller) push(quiet bool) futures.Future[uint64] {
	c.serial++
	return c.e.push(new(job), c.name<<32|c.serial, quiet)
}

func (c *caller) await(ctx context.Context, f futures.Future[uint64], serial uint64) error {
	v, err := f.Await(ctx)
	if err != nil {
		return err
	}
	c.awaited.Add(1)
	if v != c.name<<32|serial {
		return fmt.Errorf("caller %d awaited its operation %d and got the result of operation %d of caller %d", c.name, serial, v&(1<<32-1), v>>32)
	}
	return nil
}
