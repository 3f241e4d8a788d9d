package actor

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: an actor that always has work does not keep others from running, with one worker or on one
// reactor.
func TestThroughputIsBounded(t *testing.T) {
	a, _, _ := openPair(t, verbena.Options{})
	for _, on := range []Place{OnPool, OnReactor} {
		w := newWorld(t, Config{Runtime: a, Workers: 1})
		var busy Ref[int]
		ready := make(chan struct{})
		busy = spawn(w, Options{On: on}, Func[int](func(ctx *Context[int], n int) {
			<-ready
			if err := busy.Tell(ctx, n+1); err != nil && !errors.Is(err, ErrStopped) {
				t.Errorf("telling itself: %v", err)
			}
		}))
		close(ready)
		w.must("telling", busy.Tell(w.ctx, 0))
		g := newGate()
		close(g.let)
		other := spawn[int](w, Options{On: on}, g)
		w.must("telling", other.Tell(w.ctx, 1))
		wait(w, "the other actor", g.in)
		busy.StopNow()
		wait(w, "the end", busy.Done())
	}
}

// relay starts an operation at every completion, without end, and passes messages on.
type relay struct {
	pump
	got chan int
}

func (r *relay) Started(ctx *Context[int]) error {
	r.start(ctx)
	return nil
}

func (r *relay) Receive(_ *Context[int], n int) { r.got <- n }

func (r *relay) Completed(ctx *Context[int], c Completion) {
	if !ctx.Stopping() {
		r.start(ctx)
	}
}

// Rule: a constant flow of completions does not starve messages.
func TestCompletionsDoNotStarveMessages(t *testing.T) {
	a, b, ln := openPair(t, verbena.Options{})
	region := must.Get(b.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, 64))(t)
	w := newWorld(t, Config{Runtime: a})
	go func() { _, _ = ln.Accept(w.ctx) }()
	conn, err := a.Dial(w.ctx, ln.Addr().String())
	w.must("dialing", err)
	h := &relay{pump: pump{conn: conn, remote: remote}, got: make(chan int, 1)}
	r := spawn[int](w, Options{On: OnReactor}, h)
	for i := range 100 {
		w.must("telling", r.Tell(w.ctx, i))
		if n := wait(w, "the message", h.got); n != i {
			t.Errorf("got %d, want %d", n, i)
		}
	}
	r.Stop()
	wait(w, "the end, which waits for the last operation", r.Done())
}

// Rule: messages and events alternate while there are both: neither waits for all of the other.
func TestMessagesAndEventsAlternate(t *testing.T) {
	clock := newFakeClock()
	w := newWorld(t, Config{Clock: clock})
	h := newWhole()
	hold, held := make(chan struct{}), make(chan struct{})
	h.on["hold"] = func(ctx *Context[string]) {
		for i := range uint64(3) {
			ctx.After(time.Duration(i+1), i)
		}
		close(held)
		<-hold
	}
	close(h.let)
	r := spawn[string](w, Options{}, h)
	w.must("telling", r.Tell(w.ctx, "hold"))
	wait(w, "the handler", held)
	for _, m := range []string{"a", "b", "c"} {
		w.must("telling", r.Tell(w.ctx, m))
		clock.move(1)
	}
	close(hold)
	var got []string
	for range 8 {
		got = append(got, wait(w, "all of them", h.log))
	}
	got = got[2:]
	odd := []string{"timer 0", "a", "timer 1", "b", "timer 2", "c"}
	even := []string{"a", "timer 0", "b", "timer 1", "c", "timer 2"}
	if got[0] == "a" {
		odd = even
	}
	expect(t, "three timers and three messages", got, odd)
}

// Rule: timers and restarts use the runtime's clock, which its reactors keep.
func TestTimersOfARuntime(t *testing.T) {
	a, _, _ := openPair(t, verbena.Options{})
	w := newWorld(t, Config{Runtime: a})
	h := newWhole()
	close(h.let)
	h.on["set"] = func(ctx *Context[string]) {
		ctx.After(time.Millisecond, 1)
		ctx.Cancel(ctx.After(time.Nanosecond, 2))
		ctx.Every(time.Microsecond, 3)
	}
	h.on["bad"] = func(*Context[string]) { panic(errBoom) }
	r := spawn[string](w, Options{Restart: Restart{First: time.Millisecond}}, h)
	w.must("telling", r.Tell(w.ctx, "set"))
	for _, m := range h.until(w, "timer 1") {
		if m == "timer 2" {
			t.Error("a cancelled timer was delivered")
		}
	}
	h.until(w, "timer 3")
	w.must("telling", r.Tell(w.ctx, "bad"))
	h.until(w, "started 2")
	r.Stop()
	wait(w, "the end", r.Done())
	expect(t, "after the restart", h.logged(), []string{"stopped: <nil>"})
}
