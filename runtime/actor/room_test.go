package actor

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// until spins until what returns true.
func until(w *world, what func() bool) {
	for !what() {
		if w.ctx.Err() != nil {
			w.t.Fatal("it does not happen")
		}
		runtime.Gosched()
	}
}

// Rule: newcomers overtake the first in line at most patience times, and then wait behind it.
func TestTheLineIsNotOvertakenForEver(t *testing.T) {
	w := newWorld(t, Config{})
	c := &cell[int]{box: ring.NewMPSC[envelope[int]](1), room: newRoom()}
	c.queue = func() {}
	place := func(m int) { c.box.Push(&envelope[int]{m: m}) }
	place(0)
	told := make(chan error, 1)
	go func() { told <- c.tell(w.ctx, &envelope[int]{m: 1}) }()
	var e envelope[int]
	for i := range patience {
		until(w, c.room.wanted.Load)
		if c.room.overtaken.Load() {
			t.Errorf("newcomers must wait after %d lost places, want %d", i, patience)
		}
		c.box.Pop(&e)
		place(0) // a newcomer, before the first in line knows of the place
		c.room.free()
	}
	until(w, c.room.overtaken.Load)
	until(w, c.room.wanted.Load)
	c.box.Pop(&e) // a free place, of which the first in line does not know
	impatient, cancel := context.WithCancel(w.ctx)
	cancel()
	if err := c.tell(impatient, &envelope[int]{m: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("a newcomer that must wait, and does not: %v, want context.Canceled", err)
	}
	c.room.free()
	w.must("the first", wait(w, "the first", told))
	if !c.take(&e) || e.m != 1 {
		t.Errorf("message %d came first, want 1", e.m)
	}
	if w.must("a newcomer", c.tell(w.ctx, &envelope[int]{m: 3})); !c.take(&e) || e.m != 3 {
		t.Errorf("message %d came second, want 3", e.m)
	}
}

// Rule: a message whose Tell returned nil is handled, and no other, though others give up their wait or the actor
// is stopped meanwhile. Each Tell returns.
func TestTellsGiveUp(t *testing.T) {
	const senders = 8
	for _, stop := range []bool{false, true} {
		w := newWorld(t, Config{Workers: 2})
		var handled, accepted, gaveUp atomic.Int64
		r := spawn(w, Options{Mailbox: 2, Overflow: Wait}, Func[int](func(*Context[int], int) {
			handled.Add(1)
		}))
		var done sync.WaitGroup
		for range senders {
			done.Go(func() {
				for range 500 {
					ctx, cancel := context.WithTimeout(w.ctx, time.Duration(rand.Int64N(20_000)))
					err := r.Tell(ctx, 0)
					cancel()
					switch {
					case err == nil:
						accepted.Add(1)
					case errors.Is(err, context.DeadlineExceeded):
						gaveUp.Add(1)
					case !stop || !errors.Is(err, ErrStopped):
						t.Error(err)
					}
				}
			})
		}
		if stop {
			until(w, func() bool { return handled.Load() > senders*50 })
			r.Stop()
		}
		done.Wait()
		r.Stop()
		wait(w, "the end", r.Done())
		if handled.Load() != accepted.Load() {
			t.Errorf("%d messages were accepted, and %d handled", accepted.Load(), handled.Load())
		}
		t.Logf("stopped %v: %d accepted, %d gave up", stop, accepted.Load(), gaveUp.Load())
	}
}
