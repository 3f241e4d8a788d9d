package actor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// whole is a handler with all methods and a log of its calls.
type whole struct {
	log  chan string
	let  chan struct{} // one token per message
	made int
	on   map[string]func(ctx *Context[string]) // the action of a message
}

func newWhole() *whole {
	return &whole{log: make(chan string, 1000), let: make(chan struct{}, 1000), on: map[string]func(*Context[string]){}}
}

func (h *whole) Started(*Context[string]) error {
	h.made++
	h.log <- fmt.Sprint("started ", h.made)
	return nil
}

func (h *whole) Receive(ctx *Context[string], m string) {
	h.log <- m
	<-h.let
	if fn := h.on[m]; fn != nil {
		fn(ctx)
	}
}

func (h *whole) Stopped(_ *Context[string], cause error) { h.log <- fmt.Sprint("stopped: ", cause) }

func (h *whole) Timer(_ *Context[string], tag uint64) { h.log <- fmt.Sprint("timer ", tag) }

func (h *whole) Child(_ *Context[string], ev ChildEvent) {
	h.log <- fmt.Sprintf("child %s: %v, restarts %v", ev.Name, ev.Err, ev.Restarts)
}

// until returns the log up to and including last.
func (h *whole) until(w *world, last string) (all []string) {
	w.t.Helper()
	for {
		all = append(all, wait(w, last, h.log))
		if all[len(all)-1] == last {
			return all
		}
	}
}

// logged returns the log so far.
func (h *whole) logged() (all []string) {
	for {
		select {
		case s := <-h.log:
			all = append(all, s)
		default:
			return all
		}
	}
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Rule: after Stop the mailbox is handled and accepts nothing more; Stopped is the last call of the
// handler.
func TestStopDrains(t *testing.T) {
	w := newWorld(t, Config{})
	h := newWhole()
	r := spawn[string](w, Options{Name: "it"}, h)
	for _, m := range []string{"a", "b", "c"} {
		w.must("telling", r.Tell(w.ctx, m))
	}
	r.Stop()
	if err := r.Tell(w.ctx, "d"); !errors.Is(err, ErrStopped) {
		t.Errorf("telling a stopped actor: %v, want ErrStopped", err)
	}
	close(h.let)
	wait(w, "the end", r.Done())
	expect(t, "the handler", h.logged(), []string{"started 1", "a", "b", "c", "stopped: <nil>"})
	expect(t, "dead letters", w.dead(), nil)
	if err := r.Tell(w.ctx, "d"); !errors.Is(err, ErrStopped) {
		t.Errorf("telling an actor that has ended: %v, want ErrStopped", err)
	}
	want := ChildEvent{ID: r.ID(), Name: "it"}
	if n := w.noticed(); len(n) != 1 || n[0] != want {
		t.Errorf("notices %+v, want one of its end, %+v", n, want)
	}
}

// Rule: StopNow ends the actor after the current message and reports the others, even if the actor
// is draining.
func TestStopNowReportsTheRest(t *testing.T) {
	for _, gently := range []bool{false, true} {
		w := newWorld(t, Config{})
		h := newWhole()
		r := spawn[string](w, Options{}, h)
		for _, m := range []string{"a", "b", "c"} {
			w.must("telling", r.Tell(w.ctx, m))
		}
		h.until(w, "a")
		if gently {
			r.Stop()
		}
		r.StopNow()
		close(h.let)
		wait(w, "the end", r.Done())
		expect(t, "the handler", h.logged(), []string{"stopped: " + ErrStopped.Error()})
		expect(t, "dead letters", w.dead(), []string{"b: " + ErrStopped.Error(), "c: " + ErrStopped.Error()})
	}
}

// Rule: an actor that has ended accepts nothing, even when the stopping goroutine is delayed
// between setting the request and shutting the mailbox. (`make stress` once lost a message this
// way, in ten million.)
func TestWhoHasEndedTakesNothing(t *testing.T) {
	for how, want := range map[uint32]string{stopDrain: "handled", stopNow: "reported"} {
		w := newWorld(t, Config{})
		h := newWhole()
		r := spawn[string](w, Options{}, h)
		w.must("telling", r.Tell(w.ctx, "a"))
		h.until(w, "a")        // handled before the next look at requests
		r.cell.stop.Store(how) // the first half of requestStop
		w.must("telling one whose mailbox is open", r.Tell(w.ctx, "b"))
		close(h.let)
		wait(w, "the end", r.Done())
		if err := r.Tell(w.ctx, "c"); !errors.Is(err, ErrStopped) {
			t.Errorf("what waited %s, then the end: telling: %v, want ErrStopped", want, err)
		}
	}
}

// Rule: an actor that was stopped before it began still handles its mailbox (Stop), or reports it
// (StopNow).
func TestStopBeforeItBegins(t *testing.T) {
	w := newWorld(t, Config{Workers: 1})
	block := newGate()
	b := spawn[int](w, Options{}, block)
	w.must("telling", b.Tell(w.ctx, 1))
	wait(w, "the only worker", block.in)
	h, now := newWhole(), newWhole()
	r, n := spawn[string](w, Options{}, h), spawn[string](w, Options{}, now)
	w.must("telling", r.Tell(w.ctx, "a"))
	w.must("telling", n.Tell(w.ctx, "b"))
	r.Stop()
	n.StopNow()
	close(h.let)
	close(block.let)
	wait(w, "the end", r.Done())
	wait(w, "the end", n.Done())
	expect(t, "the stopped", h.logged(), []string{"started 1", "a", "stopped: <nil>"})
	expect(t, "the one stopped now", now.logged(), nil)
	expect(t, "dead letters", w.dead(), []string{"b: " + ErrStopped.Error()})
}

// Rule: children end before their parent, by the same kind of stop, and it is told of each.
func TestChildrenEndFirst(t *testing.T) {
	for _, now := range []bool{false, true} {
		w := newWorld(t, Config{})
		h, kid := newWhole(), newWhole()
		var child Ref[string]
		h.on["spawn"] = func(ctx *Context[string]) {
			var err error
			child, err = Spawn(ctx, Options{Name: "kid"}, func() Handler[string] { return kid })
			w.must("spawning", err)
			w.must("telling", child.Tell(ctx, "x"))
			ctx.Self().Stop()
			if _, err := Spawn(ctx, Options{}, func() Handler[string] { return &fragile{} }); err != nil {
				t.Errorf("spawning in the handler that stops: %v", err)
			}
		}
		r := spawn[string](w, Options{}, h)
		w.must("telling", r.Tell(w.ctx, "spawn"))
		close(h.let)
		kid.until(w, "x")
		if now {
			r.StopNow()
		}
		settle(w, r) // until it has seen the stop
		select {
		case <-r.Done():
			t.Error("the parent has ended before its child")
		default:
		}
		close(kid.let)
		wait(w, "the end", r.Done())
		select {
		case <-child.Done():
		default:
			t.Error("the parent has ended, the child not")
		}
		got := h.logged()
		last := got[len(got)-1]
		if now && last != "stopped: "+ErrStopped.Error() || !now && (last != "stopped: <nil>" || !slices.Contains(got, "child kid: <nil>, restarts false")) {
			t.Errorf("now %v: the parent's log is %q", now, got)
		}
	}
}

// tellsInProgress is the body of an actor with messages that are being pushed.
type tellsInProgress struct{ body }

func (tellsInProgress) pending() int { return 1 }

// Rule: an actor with an empty mailbox does not part while a Tell is in progress, which wakes it.
func TestPartingWaitsForTellInProgress(t *testing.T) {
	for _, p := range []phase{draining, parting} {
		a := &core{body: tellsInProgress{}, phase: p}
		if a.part() || a.phase != p {
			t.Errorf("in phase %d the actor went on, to phase %d", p, a.phase)
		}
	}
}

// Rule: timers fire once or repeatedly; a timer that was canceled, or due when the actor stopped,
// does not.
func TestTimers(t *testing.T) {
	clock := newFakeClock()
	w := newWorld(t, Config{Clock: clock})
	h := newWhole()
	close(h.let)
	h.on["set"] = func(ctx *Context[string]) {
		ctx.After(10, 1)
		ctx.Every(20, 2)
		if id := ctx.After(10, 3); !ctx.Cancel(id) || ctx.Cancel(id) {
			t.Error("a timer is cancelled once")
		}
	}
	hold := make(chan struct{})
	h.on["hold"] = func(*Context[string]) { <-hold }
	h.on["late"] = func(ctx *Context[string]) {
		if after, every := ctx.After(10, 4), ctx.Every(10, 4); after != 0 || every != 0 {
			t.Errorf("while it stops, timers %d and %d were set, want none", after, every)
		}
	}
	r := spawn[string](w, Options{}, h)
	w.must("telling", r.Tell(w.ctx, "set"))
	for range 3 {
		wait(w, "a timer", clock.made)
	}
	clock.move(10)
	clock.move(10)
	for _, want := range []string{"started 1", "set", "timer 1", "timer 2"} {
		if got := wait(w, want, h.log); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	wait(w, "the timer again", clock.made)
	w.must("telling", r.Tell(w.ctx, "hold"))
	w.must("telling", r.Tell(w.ctx, "late"))
	wait(w, "holding", h.log)
	clock.move(20) // due, while the handler is busy
	r.Stop()
	close(hold)
	wait(w, "the end", r.Done())
	expect(t, "after the stop", h.logged(), []string{"late", "stopped: <nil>"})
	if n := clock.waiting(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
}

// Rule: Close drains the actors and refuses new ones; when its context ends it stops them now, and
// the error names those that do not return.
func TestClose(t *testing.T) {
	w := newWorld(t, Config{})
	h := newWhole()
	r := spawn[string](w, Options{Name: "slow"}, h)
	w.must("telling", r.Tell(w.ctx, "a"))
	w.must("telling", r.Tell(w.ctx, "b"))
	h.until(w, "a")
	closed := make(chan error, 1)
	go func() { closed <- w.Close(w.ctx) }()
	for { // until Close has begun
		if _, err := Spawn(w.System, Options{}, func() Handler[string] { return newWhole() }); errors.Is(err, ErrClosed) {
			break
		}
	}
	close(h.let)
	w.must("closing", wait(w, "Close", closed))
	expect(t, "the handler", h.logged(), []string{"b", "stopped: <nil>"})
	w.must("closing again", w.Close(w.ctx))
}

// Rule: invalid options are refused, and the error names the option.
func TestMistakes(t *testing.T) {
	w := newWorld(t, Config{})
	make := func() Handler[int] { return newGate() }
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Mailbox: -1}, "Mailbox"}, {Options{Mailbox: maxMailbox + 1}, "Mailbox"}, {Options{Overflow: 9}, "Overflow"},
		{Options{On: 9}, "Options.On"}, {Options{On: OnReactor}, "without a Config.Runtime"}, {Options{Throughput: -1}, "Throughput"},
		{Options{Operations: -1}, "Operations"}, {Options{Receives: -1}, "Receives"},
		{Options{Restart: Restart{Most: maxRestarts + 1}}, "Restart.Most"}, {Options{Restart: Restart{Within: -1}}, "Restart"}, {Options{Restart: Restart{First: 2, Last: 1}}, "Restart"},
	} {
		if _, err := Spawn(w.System, c.o, make); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want ErrConfig about %s", c.o, err, c.want)
		}
	}
	if _, err := Spawn[int](w.System, Options{}, nil); !errors.Is(err, ErrConfig) {
		t.Errorf("without a function: %v", err)
	}
	if _, err := New(Config{Workers: -1}); !errors.Is(err, ErrConfig) {
		t.Errorf("workers: %v", err)
	}
	var nobody Ref[int]
	if err := nobody.Tell(w.ctx, 1); !errors.Is(err, ErrNoActor) {
		t.Errorf("the zero Ref: %v", err)
	}
	nobody.Stop()
	nobody.StopNow()
	if nobody.ID() != 0 || nobody.Waiting() != 0 || nobody.Done() != nil || nobody.Name() == "" {
		t.Error("the zero Ref is somebody")
	}
}

// Rule: a handler that closes its system, which would wait for that handler, is refused with any
// context, and nothing is closed.
func TestClosingTheSystemInAHandlerIsRefused(t *testing.T) {
	w := newWorld(t, Config{})
	got := make(chan error, 2)
	r := spawn[int](w, Options{}, Func[int](func(ctx *Context[int], _ int) {
		got <- w.Close(ctx)
		got <- w.Close(w.ctx)
	}))
	w.must("telling", r.Tell(w.ctx, 0))
	for range 2 {
		if err := wait(w, "the answer", got); !errors.Is(err, ErrWouldDeadlock) {
			t.Errorf("closing in a handler: %v, want ErrWouldDeadlock", err)
		}
	}
	if err := r.Tell(w.ctx, 0); err != nil {
		t.Errorf("telling after that: %v", err)
	}
	wait(w, "the answer", got)
	wait(w, "the answer", got)
}

// Rule: Spawn without a parent is refused.
func TestSpawningByNobodyIsRefused(t *testing.T) {
	if _, err := Spawn(nil, Options{}, func() Handler[int] { return Func[int](func(*Context[int], int) {}) }); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
}
