package ring

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Without contention Credits is a counter.
func TestCreditsAgainstModel(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5).Draw(t, "n")
		c := NewCredits(n)
		free := n
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 4:
				if free < n {
					c.ReleaseLater(rapid.IntRange(1, 3).Draw(t, "batch"))
					free++
				}
			case 0:
				if ok := c.TryAcquire(); ok != (free > 0) {
					t.Fatalf("TryAcquire with %d free: %v", free, ok)
				} else if ok {
					free--
				}
			case 1: // never waits: the context is done
				err := c.Acquire(done.Done())
				if (free > 0) != (err == nil) || (err != nil && !errors.Is(err, ErrDone)) {
					t.Fatalf("Acquire with %d free: %v", free, err)
				}
				if err == nil {
					free--
				}
			case 2:
				if free < n {
					c.Release()
					free++
				}
			case 3:
				k := rapid.IntRange(0, n-free).Draw(t, "many")
				c.ReleaseN(k)
				free += k
			}
			if c.Available() != free || c.Waiting() != 0 || c.Cap() != n {
				t.Fatalf("%d free, %d wait, of %d; want %d free, none waiting, of %d", c.Available(), c.Waiting(), c.Cap(), free, n)
			}
		}
	})
}

func TestCreditsReleasedTooOften(t *testing.T) {
	for _, k := range []int{-1, 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("ReleaseN(%d) with all credits free must panic", k)
				}
			}()
			NewCredits(3).ReleaseN(k)
		}()
	}
}

// await spins until what returns true; the test's deadline ends a wait in vain.
func await(what func() bool) {
	for !what() {
		runtime.Gosched()
	}
}

func TestCreditsServeWaitersInOrder(t *testing.T) {
	const waiters = 8
	c := NewCredits(1)
	if err := c.Acquire(nil); err != nil {
		t.Fatal(err)
	}
	order := make(chan int, waiters)
	for i := range waiters {
		go func() {
			if err := c.Acquire(nil); err != nil {
				t.Error(err)
			}
			order <- i
		}()
		await(func() bool { return c.Waiting() == i+1 && parked() >= i+1 })
	}
	for want := range waiters {
		c.Release()
		if got := <-order; got != want {
			t.Fatalf("waiter %d was served, want %d", got, want)
		}
		if c.TryAcquire() {
			t.Fatal("a newcomer overtook")
		}
	}
}

// parked counts the goroutines that are in Acquire's select.
func parked() int {
	buf := make([]byte, 1<<16)
	n := runtime.Stack(buf, true)
	return countSelects(string(buf[:n]))
}

func TestCreditsClose(t *testing.T) {
	c := NewCredits(2)
	for range 2 {
		if !c.TryAcquire() {
			t.Fatal("a free credit was refused")
		}
	}
	errs := make(chan error, 3)
	for range 3 {
		go func() { errs <- c.Acquire(nil) }()
	}
	await(func() bool { return c.Waiting() == 3 })
	c.Close()
	c.Close()
	for range 3 {
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("a waiter got %v, want ErrClosed", err)
		}
	}
	c.ReleaseN(2)
	if err := c.Acquire(nil); !errors.Is(err, ErrClosed) || c.TryAcquire() {
		t.Errorf("acquired from closed credits: %v", err)
	}
	if c.Available() != 2 || c.Waiting() != 0 {
		t.Errorf("%d free and %d wait after all, want 2 and 0", c.Available(), c.Waiting())
	}
}

// There are never more holders than credits, and none is lost, while waiters give up all the time.
func TestCreditsConcurrently(t *testing.T) {
	const n, workers, each = 3, 8, 4000
	c := NewCredits(n)
	var holders atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for k := range each {
				ctx, cancel := context.WithCancel(context.Background())
				if (w+k)%3 == 0 {
					go cancel()
				}
				if err := c.Acquire(ctx.Done()); err == nil {
					if h := holders.Add(1); h > n {
						t.Errorf("%d hold %d credits", h, n)
					}
					if k%4 == 0 {
						runtime.Gosched()
					}
					holders.Add(-1)
					c.Release()
				} else if !errors.Is(err, ErrDone) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if c.Available() != n || c.Waiting() != 0 || len(c.enter().handed) != 0 {
		t.Errorf("%d free, %d wait, %d tokens; want %d, 0, 0", c.Available(), c.Waiting(), len(c.enter().handed), n)
	}
}

// Closing while other goroutines acquire, release and cancel loses nothing either.
func TestCreditsCloseConcurrently(t *testing.T) {
	for range 300 {
		c := NewCredits(2)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for c.Acquire(nil) == nil {
					runtime.Gosched()
					c.Release()
				}
			})
		}
		wg.Go(c.Close)
		wg.Wait()
		if c.Available() != 2 || len(c.enter().handed) != 0 {
			t.Fatalf("%d free and %d tokens after Close, want 2 and 0", c.Available(), len(c.enter().handed))
		}
	}
}

// The two ways to leave, on the real code: a waiter that no credit is meant for withdraws, and one
// that a credit is meant for takes it and gives it back.
func TestCreditsLeave(t *testing.T) {
	c := NewCredits(1)
	if !c.TryAcquire() {
		t.Fatal("a free credit was refused")
	}
	c.waiting.Add(1) // Acquire, up to its select
	c.leave(c, c.enter(), c.broken)
	if c.Waiting() != 0 || c.Available() != 0 || len(c.enter().handed) != 0 {
		t.Fatalf("after a withdrawal: %d wait, %d free, %d tokens", c.Waiting(), c.Available(), len(c.enter().handed))
	}
	c.waiting.Add(1)
	c.Release() // the credit is meant for this waiter
	c.leave(c, c.enter(), c.broken)
	if c.Waiting() != 0 || c.Available() != 1 || len(c.enter().handed) != 0 {
		t.Fatalf("after giving back: %d wait, %d free, %d tokens; want 0, 1, 0", c.Waiting(), c.Available(), len(c.enter().handed))
	}
}

// Rule: Restore accepts a number of credits from the peer only if so many are in use; a refused
// number changes nothing, and waiters get theirs.
func TestRestoreRefusesMoreThanIsOut(t *testing.T) {
	c := NewCredits(2)
	if c.Restore(1) {
		t.Fatal("restored a credit that was not out")
	}
	for range 2 {
		if !c.TryAcquire() {
			t.Fatal("no credit of two")
		}
	}
	got := make(chan error, 1)
	go func() { got <- c.Acquire(t.Context().Done()) }()
	for c.Waiting() == 0 {
		runtime.Gosched()
	}
	if c.Restore(3) || c.Restore(-1) {
		t.Fatal("restored 3 or -1 where 2 are out and 1 waits")
	}
	if !c.Restore(2) {
		t.Fatal("did not restore 2 of 2")
	}
	if err := <-got; err != nil || c.Available() != 1 {
		t.Fatalf("the waiter got %v and %d are free, want nil and 1", err, c.Available())
	}
}

// Rule: a peer that gives back credits that waiters have not had yet makes no goroutine panic or
// wait forever. (Once it crashed the process, or a Send never returned.)
func TestLeavingAfterAStrangersLie(t *testing.T) {
	for _, waiters := range []int{1, 2} {
		c := NewCredits(1)
		if !c.TryAcquire() {
			t.Fatal("no credit of one")
		}
		c.enter()
		c.waiting.Add(int64(waiters)) // so many are between their first step and the select
		told := []bool{c.Restore(1), c.Restore(1)}
		if !told[0] || waiters == 2 && told[1] {
			t.Fatalf("%d waiters: the restores said %v", waiters, told)
		}
		c.Close()
		for range waiters {
			left := make(chan struct{})
			go func() { defer close(left); c.leave(c, c.enter(), c.broken) }()
			select {
			case <-left:
			case <-time.After(10 * time.Second):
				t.Fatalf("%d waiters: one never leaves", waiters)
			}
		}
	}
}
