package actor

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
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

// inLine waits until n goroutines sleep in line, with the first.
func inLine(w *world, n int) {
	w.t.Helper()
	buf := make([]byte, 1<<20)
	until(w, func() bool {
		found := 0
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if (strings.Contains(g, "[select") || strings.Contains(g, "[chan receive")) && strings.Contains(g, "pushInLine") {
				found++
			}
		}
		return found >= n
	})
}

// Rule: when the first in line was woken patience times in vain, newcomers wait behind it.
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
		inLine(w, 1)
		if c.room.overtaken.Load() {
			t.Errorf("newcomers must wait after %d wake-ups in vain, want %d", i, patience)
		}
		c.box.Pop(&e)
		place(0) // a newcomer, before the first in line knows of the place
		c.room.wake()
	}
	until(w, c.room.overtaken.Load)
	inLine(w, 1)
	c.box.Pop(&e) // frees a place without a signal to the first in line
	impatient, cancel := context.WithCancel(w.ctx)
	cancel()
	if err := c.tell(impatient, &envelope[int]{m: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("a newcomer that must wait, and does not: %v, want context.Canceled", err)
	}
	c.room.wake()
	w.must("the first", wait(w, "the first", told))
	if !c.take(&e) || e.m != 1 {
		t.Errorf("message %d came first, want 1", e.m)
	}
	if w.must("a newcomer", c.tell(w.ctx, &envelope[int]{m: 3})); !c.take(&e) || e.m != 3 {
		t.Errorf("message %d came second, want 3", e.m)
	}
}

// Rule: while newcomers must wait, a handler that finds a place tells, and only without one is refused.
func TestAHandlerIsNotRefusedBesideAPlace(t *testing.T) {
	w := newWorld(t, Config{})
	c := &cell[int]{box: ring.NewMPSC[envelope[int]](1), room: newRoom()}
	c.queue = func() {}
	c.room.overtaken.Store(true)
	handler := context.WithValue(w.ctx, insideKey{}, true)
	w.must("telling", c.tell(handler, &envelope[int]{}))
	if err := c.tell(handler, &envelope[int]{}); !errors.Is(err, ErrWouldDeadlock) {
		t.Errorf("telling without room: %v, want ErrWouldDeadlock", err)
	}
}

// slowContext has ended, and its method Err blocks.
type slowContext struct {
	context.Context
	asked, let chan struct{}
}

func (c *slowContext) Done() <-chan struct{} { return closed }

func (c *slowContext) Err() error {
	close(c.asked)
	<-c.let
	return context.Canceled
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Rule: Tell calls the methods of its context without the token. So a context whose Err blocks does not delay other Tells.
func TestAContextDelaysNoOtherTell(t *testing.T) {
	w := newWorld(t, Config{})
	c := &cell[int]{box: ring.NewMPSC[envelope[int]](1), room: newRoom()}
	c.queue = func() {}
	w.must("telling", c.tell(w.ctx, &envelope[int]{}))
	slow := &slowContext{w.ctx, make(chan struct{}), make(chan struct{})}
	told := make(chan error)
	go func() { told <- c.tell(slow, &envelope[int]{}) }()
	wait(w, "the call of Err", slow.asked)
	second := make(chan error)
	go func() { second <- c.tell(w.ctx, &envelope[int]{m: 2}) }()
	inLine(w, 1)
	var e envelope[int]
	c.take(&e)
	w.must("the second", wait(w, "the second", second))
	close(slow.let)
	if err := wait(w, "the first", told); !errors.Is(err, context.Canceled) {
		t.Errorf("a Tell whose context has ended: %v, want context.Canceled", err)
	}
}

// Rule: a request to stop ends all waits at once, though their contexts do not end and the handler is busy.
func TestStopEndsTheWaits(t *testing.T) {
	const waits = 3
	for _, stop := range []func(Ref[int]){Ref[int].Stop, Ref[int].StopNow} {
		w := newWorld(t, Config{})
		g := newGate()
		r := spawn[int](w, Options{Mailbox: 1, Overflow: Wait}, g)
		w.must("telling", r.Tell(w.ctx, 0))
		wait(w, "the first", g.in) // the handler is busy from now on
		w.must("telling", r.Tell(w.ctx, 1))
		told := make(chan error, waits)
		for range waits {
			go func() { told <- r.Tell(context.WithoutCancel(w.ctx), 2) }()
		}
		inLine(w, waits)
		stop(r)
		for range waits {
			if err := wait(w, "a Tell that waited", told); !errors.Is(err, ErrStopped) {
				t.Errorf("a Tell that waited for a stopped actor: %v, want ErrStopped", err)
			}
		}
		close(g.let)
		wait(w, "the end", r.Done())
	}
}

// Rule: a message whose Tell returned nil is handled once, and no other is, though others give up their wait or the
// actor is stopped meanwhile. Each Tell returns.
func TestTellsGiveUp(t *testing.T) {
	const senders, each = 8, 500
	for _, stop := range []bool{false, true} {
		w := newWorld(t, Config{Workers: 2})
		var handled, accepted [senders * each]int // each element has one writer
		var n, sending atomic.Int64
		r := spawn(w, Options{Mailbox: 2, Overflow: Wait}, Func[int](func(_ *Context[int], m int) {
			handled[m]++
			n.Add(1)
		}))
		sending.Store(senders)
		var done sync.WaitGroup
		for s := range senders {
			done.Go(func() {
				defer sending.Add(-1)
				for m := s * each; m < (s+1)*each; m++ {
					ctx, cancel := context.WithTimeout(w.ctx, time.Duration(rand.Int64N(20_000)))
					err := r.Tell(ctx, m)
					cancel()
					switch {
					case err == nil:
						accepted[m]++
					case !errors.Is(err, context.DeadlineExceeded) && (!stop || !errors.Is(err, ErrStopped)):
						t.Error(err)
					}
				}
			})
		}
		if stop {
			until(w, func() bool { return n.Load() > senders*each/10 || sending.Load() == 0 })
			r.Stop()
		}
		done.Wait()
		r.Stop()
		wait(w, "the end", r.Done())
		if handled != accepted {
			t.Errorf("of %d messages, others were handled than accepted", n.Load())
		}
		t.Logf("stopped %v: %d of %d were accepted", stop, n.Load(), len(handled))
	}
}
