package ring

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Without contention Slots is a free list, and waiting with a closed done changes nothing.
func TestSlotsAgainstModel(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "n")
		s := NewSlots(NewLinks(n))
		var held []uint32
		out := map[uint32]bool{}
		got := func(i uint32) {
			if int(i) >= n || out[i] {
				t.Fatalf("slot %d of %d given, %v are out", i, n, held)
			}
			held, out[i] = append(held, i), true
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				i, ok := s.Get()
				if ok != (len(held) < n) {
					t.Fatalf("Get with %d of %d out: %v", len(held), n, ok)
				}
				if ok {
					got(i)
				}
			case 1:
				i, err := s.Wait(done.Done())
				if err == nil {
					got(i)
				} else if !errors.Is(err, ErrDone) {
					t.Fatal(err)
				}
			case 2:
				k := rapid.IntRange(0, len(held)).Draw(t, "many")
				s.PutN(held[:k])
				for _, i := range held[:k] {
					delete(out, i)
				}
				held = held[k:]
			case 3:
				if len(held) > 0 {
					s.Put(held[0])
					delete(out, held[0])
					held = held[1:]
				}
			}
			if s.Waiting() != 0 {
				t.Fatalf("%d wait, want none", s.Waiting())
			}
		}
	})
}

// await spins until what returns true; the test's deadline ends a wait in vain.
func await(what func() bool) {
	for !what() {
		runtime.Gosched()
	}
}

// parked counts the goroutines that are in Wait's select.
func parked() int {
	buf := make([]byte, 1<<16)
	n := runtime.Stack(buf, true)
	return countSelects(string(buf[:n]))
}

func TestSlotsServeWaitersInOrder(t *testing.T) {
	const waiters = 8
	s := NewSlots(NewLinks(1))
	slot, _ := s.Get()
	order := make(chan int, waiters)
	for i := range waiters {
		go func() {
			if _, err := s.Wait(nil); err != nil {
				t.Error(err)
			}
			order <- i
		}()
		await(func() bool { return s.Waiting() == i+1 && parked() >= i+1 })
	}
	for want := range waiters {
		s.Put(slot)
		if got := <-order; got != want {
			t.Fatalf("waiter %d was served, want %d", got, want)
		}
		if _, ok := s.Get(); ok {
			t.Fatal("a newcomer overtook")
		}
	}
}

func TestSlotsClose(t *testing.T) {
	s := NewSlots(NewLinks(2))
	a, _ := s.Get()
	b, _ := s.Get()
	errs := make(chan error, 3)
	for range 3 {
		go func() { _, err := s.Wait(nil); errs <- err }()
	}
	await(func() bool { return s.Waiting() == 3 })
	s.Close()
	s.Close()
	for range 3 {
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("a waiter got %v, want ErrClosed", err)
		}
	}
	s.PutN([]uint32{a, b})
	if _, err := s.Wait(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("waited for closed slots: %v", err)
	}
	home := 0
	for {
		if _, ok := s.Collect(); !ok {
			break
		}
		home++
	}
	if home != 2 || s.Waiting() != 0 {
		t.Errorf("%d at home and %d wait after all, want 2 and 0", home, s.Waiting())
	}
}

// Rule: a slot has one holder, no goroutine sleeps beside a free one, and none is lost, while many
// get, wait and give up all the time.
func TestSlotsConcurrently(t *testing.T) {
	const n, workers, each = 3, 8, 4000
	s := NewSlots(NewLinks(n))
	var owned [n]int // plain: the race detector checks the ownership
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for k := range each {
				i, ok := s.Get()
				if !ok {
					ctx, cancel := context.WithCancel(context.Background())
					if (w+k)%3 == 0 {
						go cancel()
					}
					var err error
					i, err = s.Wait(ctx.Done())
					cancel()
					if err != nil {
						continue
					}
				}
				owned[i]++
				if k%5 == 0 {
					runtime.Gosched()
				}
				if k%2 == 0 {
					s.Put(i)
				} else {
					s.PutN([]uint32{i})
				}
			}
		})
	}
	wg.Wait()
	home := 0
	for {
		if _, ok := s.Get(); !ok {
			break
		}
		home++
	}
	if home != n || s.Waiting() != 0 {
		t.Errorf("%d slots are home and %d wait, want %d and 0", home, s.Waiting(), n)
	}
}

// Rule: a slot given back twice is detected when it is handed to a waiter, and no goroutine blocks
// because of it.
func TestSlotsGivenBackTwice(t *testing.T) {
	s := NewSlots(NewLinks(1))
	i, _ := s.Get()
	s.enter(1)
	s.waiting.Store(2) // two in Wait, up to their select
	s.Put(i)
	defer func() {
		if recover() == nil {
			t.Error("a slot handed out twice must panic")
		}
	}()
	s.Put(i)
}
