package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// gate is a handler that logs its messages, and waits for a token after each unless let is nil.
type gate struct {
	in  chan int      // every message, at the start of its handling
	let chan struct{} // one token per message; nil: open
}

func (g *gate) Receive(_ *Context[int], m int) {
	g.in <- m
	if g.let != nil {
		<-g.let
	}
}

func newGate() *gate { return &gate{in: make(chan int, 1000), let: make(chan struct{}, 1000)} }

// Rule: all messages of one goroutine to one actor are handled in order, one at a time.
func TestPerPairOrder(t *testing.T) {
	const senders, each = 8, 5000
	w := newWorld(t, Config{Workers: 4})
	type from struct{ who, n int }
	next := make([]int, senders)
	inside := 0
	r := spawn(w, Options{Mailbox: 16, Overflow: Wait}, Func[from](func(_ *Context[from], m from) {
		inside++ // the race detector checks this, too
		if inside != 1 || next[m.who] != m.n {
			t.Errorf("%d inside; sender %d: message %d, want %d", inside, m.who, m.n, next[m.who])
		}
		next[m.who]++
		inside--
	}))
	var done sync.WaitGroup
	for s := range senders {
		done.Go(func() {
			for n := range each {
				if err := r.Tell(w.ctx, from{s, n}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	r.Stop()
	wait(w, "the end", r.Done())
	for s, n := range next {
		if n != each {
			t.Errorf("of sender %d %d were handled, want %d", s, n, each)
		}
	}
}

// Rule: a full mailbox fails, drops and reports the newest message, or waits, as configured; the
// messages in it are handled.
func TestOverflow(t *testing.T) {
	for _, c := range []struct {
		how  Overflow
		want error
		dead []string
	}{
		{Fail, ErrMailboxFull, nil},
		{Drop, nil, []string{"4: " + ErrMailboxFull.Error()}},
		{Wait, context.DeadlineExceeded, nil},
	} {
		t.Run(fmt.Sprint(c.how), func(t *testing.T) {
			w := newWorld(t, Config{})
			g := newGate()
			r := spawn[int](w, Options{Mailbox: 3, Overflow: c.how}, g)
			w.must("telling", r.Tell(w.ctx, 0))
			wait(w, "the first", g.in) // no longer in the mailbox
			for i := 1; i <= 3; i++ {
				w.must("telling", r.Tell(w.ctx, i))
			}
			if r.Waiting() != 3 {
				t.Errorf("%d wait, want 3", r.Waiting())
			}
			ctx, cancel := context.WithTimeout(w.ctx, 1)
			defer cancel()
			if err := r.Tell(ctx, 4); !errors.Is(err, c.want) {
				t.Errorf("one more: %v, want %v", err, c.want)
			}
			if got := w.dead(); !slices.Equal(got, c.dead) {
				t.Errorf("dead letters %q, want %q", got, c.dead)
			}
			if c.how == Wait { // with time, there is room
				told := make(chan error)
				go func() { told <- r.Tell(w.ctx, 4) }()
				g.let <- struct{}{}
				w.must("waiting", wait(w, "room", told))
			}
			close(g.let)
			r.Stop()
			wait(w, "the end", r.Done())
			close(g.in)
			got := 1
			for m := range g.in {
				if m != got {
					t.Errorf("handled %d, want %d", m, got)
				}
				got++
			}
			if want := 4; c.how != Wait && got != want {
				t.Errorf("handled %d, want %d", got, want)
			}
		})
	}
}

// deep calls fn with n more frames on the stack.
func deep(n int, fn func() error) error {
	if n == 0 {
		return fn()
	}
	return errors.Join(deep(n-1, fn))
}

// Rule: a handler never waits for room, in its own mailbox or another's, even with a context
// derived from its own, or without it.
func TestHandlersDoNotWaitForRoom(t *testing.T) {
	w := newWorld(t, Config{})
	got := make(chan error, 4)
	var self Ref[int]
	ready := make(chan struct{})
	g := newGate()
	full := spawn[int](w, Options{Mailbox: 1, Overflow: Wait}, g)
	w.must("telling", full.Tell(w.ctx, 0))
	wait(w, "the first", g.in)
	w.must("telling", full.Tell(w.ctx, 1))
	self = spawn(w, Options{Mailbox: 1, Overflow: Wait}, Func[int](func(ctx *Context[int], m int) {
		if m > 0 {
			return
		}
		<-ready
		w.must("telling itself, with room", self.Tell(ctx, 1))
		got <- self.Tell(ctx, 2)
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		got <- full.Tell(inner, 2)
		got <- self.Tell(context.Background(), 2)
		got <- deep(100, func() error { return full.Tell(context.Background(), 2) })
	}))
	w.must("telling", self.Tell(w.ctx, 0))
	close(ready)
	for _, whom := range []string{"itself", "another", "itself, without its context", "another, deep down, without it"} {
		if err := wait(w, "the answer", got); !errors.Is(err, ErrWouldDeadlock) {
			t.Errorf("telling %s without room: %v, want ErrWouldDeadlock", whom, err)
		}
	}
	close(g.let)
}

// Rule: Tell allocates nothing, for every Overflow with room, and while it waits. Over a million calls.
func TestTellAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const batch = 1000
	for _, o := range []Options{{Mailbox: 2 * batch, Overflow: Fail}, {Mailbox: 2 * batch, Overflow: Wait}, {Mailbox: 16, Overflow: Wait}} {
		w := newWorld(t, Config{})
		n := 0
		tick := make(chan struct{}, 1)
		r := spawn(w, o, Func[[4]uint64](func(*Context[[4]uint64], [4]uint64) {
			if n++; n%batch == 0 {
				tick <- struct{}{}
			}
		}))
		ctx := context.Background()
		round := func() {
			for range batch {
				if err := r.Tell(ctx, [4]uint64{1, 2, 3, 4}); err != nil {
					t.Fatal(err)
				}
			}
			<-tick
		}
		round()
		if per := testing.AllocsPerRun(1000, round); per >= 1 { // rounds of 1000 Tells each; a stray allocation is the test's
			t.Errorf("overflow %d, %d places: %v allocations per %d Tells, want 0", o.Overflow, o.Mailbox, per, batch)
		}
		r.Stop()
		wait(w, "the end", r.Done())
	}
}
