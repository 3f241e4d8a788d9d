package ring

import (
	"context"
	"runtime"
	"strings"
	"testing"
)

// countSelects counts goroutines whose dump says that they wait in a select inside Wait.
func countSelects(dump string) (n int) {
	for g := range strings.SplitSeq(dump, "\n\n") {
		if strings.Contains(g, "[select") && strings.Contains(g, "(*Slots).Wait") {
			n++
		}
	}
	return n
}

func TestHotPathAllocatesNothing(t *testing.T) {
	s, f, m, c := NewIndexStack(NewLinks(8)), NewFreeList(NewLinks(8)), NewMPSC[int](8), NewSlots(NewLinks(8))
	v := 1
	q := NewIndexQueue(8)
	var in Inbox[letter, *letter]
	l := &letter{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if n := testing.AllocsPerRun(1000, func() {
		i, _ := f.Get()
		s.Push(i)
		s.TakeAll()
		f.Put(i)
		m.Push(&v)
		m.Pop(&v)
		q.Push(i)
		q.Pop()
		in.Push(l)
		in.TakeAll().InboxHook().Unlink()
		if i, err := c.Wait(ctx.Done()); err == nil {
			c.Put(i)
		}
	}); n != 0 {
		t.Errorf("%v allocations per turn, want 0", n)
	}
}

// Waiting allocates nothing either, with or without a context that can end.
func TestWaitAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const rounds = 20000
	ping, pong := NewSlots(NewLinks(1)), NewSlots(NewLinks(1))
	ping.Get()
	pong.Get()
	done := make(chan error, 1)
	turn := func(n int) {
		go func() {
			var err error
			for range n {
				if _, err = ping.Wait(nil); err != nil {
					break
				}
				pong.Put(0)
			}
			done <- err
		}()
		for range n {
			ping.Put(0)
			if _, err := pong.Wait(ctx.Done()); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	turn(1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	turn(rounds)
	runtime.ReadMemStats(&after)
	// The runtime itself allocates now and then (its caches of waiters).
	if n := after.Mallocs - before.Mallocs; n > rounds/1000 {
		t.Errorf("%d allocations in %d round trips, want next to none", n, rounds)
	}
}

func BenchmarkIndexStackPushTake(b *testing.B) {
	s := NewIndexStack(NewLinks(1))
	for b.Loop() {
		s.Push(0)
		s.TakeAll()
	}
}

func BenchmarkFreeListGetPut(b *testing.B) {
	f := NewFreeList(NewLinks(8))
	for b.Loop() {
		i, _ := f.Get()
		f.Put(i)
	}
}

func BenchmarkInboxPushTake(b *testing.B) {
	var in Inbox[letter, *letter]
	l := &letter{}
	for b.Loop() {
		in.Push(l)
		in.TakeAll()
	}
}
