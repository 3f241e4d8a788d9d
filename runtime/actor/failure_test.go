package actor

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

var errBoom = errors.New("boom")

// Rule: a panic is caught; the message is reported with it and not handled again. A new instance
// handles the rest after the delay, and the parent is told of the panic with its stack.
func TestPanicRestarts(t *testing.T) {
	for _, how := range []string{"panic", "goexit"} {
		t.Run(how, func(t *testing.T) {
			clock := newFakeClock()
			w := newWorld(t, Config{Clock: clock})
			h := newWhole()
			close(h.let)
			h.on["bad"] = func(ctx *Context[string]) {
				ctx.After(time.Hour, 1) // canceled with the instance
				if how == "goexit" {
					runtime.Goexit()
				}
				panic(errBoom)
			}
			r := spawn[string](w, Options{Name: "it", Restart: Restart{First: time.Second}}, h)
			for _, m := range []string{"a", "bad", "b"} {
				w.must("telling", r.Tell(w.ctx, m))
			}
			wait(w, "the timer", clock.made)
			d := wait(w, "the backoff", clock.made)
			if d < time.Second || d > 3*time.Second/2 {
				t.Errorf("the first delay is %v, want 1s to 1.5s", d)
			}
			if n := clock.waiting(); n != 1 {
				t.Errorf("%d timers wait, want the restart's only", n)
			}
			clock.move(d)
			got := h.until(w, "b")
			r.Stop()
			wait(w, "the end", r.Done())
			cause := ErrGoexit.Error()
			if how == "panic" {
				cause = "user code panicked: boom"
			}
			expect(t, "the handler", append(got, h.logged()...), []string{"started 1", "a", "bad", "stopped: " + cause, "started 2", "b", "stopped: <nil>"})
			expect(t, "dead letters", w.dead(), []string{"bad: " + cause})
			n := w.noticed()
			if len(n) != 2 || !n[0].Restarts || n[0].Delay != d || n[1].Restarts || n[1].Err != nil {
				t.Fatalf("notices %+v, want one of the failure and one of the end", n)
			}
			if how == "goexit" {
				return
			}
			p, ok := errors.AsType[*PanicError](n[0].Err)
			if !ok || !strings.Contains(string(p.Stack), "TestPanicRestarts") || !errors.Is(n[0].Err, errBoom) {
				t.Errorf("the notice's error is %v, want the panic with its stack", n[0].Err)
			}
		})
	}
}

// fragile fails in Started or Receive, as configured.
type fragile struct {
	start error
	panic bool
}

func (f *fragile) Started(*Context[string]) error { return f.start }
func (f *fragile) Receive(*Context[string], string) {
	if f.panic {
		panic(errBoom)
	}
}

// Rule: delays double up to Last, each extended by up to a half, the same for the same seed; beyond
// Most within Within the actor ends and its mailbox is reported.
func TestBackoffAndBound(t *testing.T) {
	var runs [2]string
	for i := range runs {
		clock := newFakeClock()
		w := newWorld(t, Config{Clock: clock, Seed: 7})
		r := spawn[string](w, Options{Restart: Restart{Most: 5, First: 10, Last: 120}}, &fragile{start: errBoom})
		w.must("telling", r.Tell(w.ctx, "never"))
		base := time.Duration(10)
		for restarts := range uint64(5) {
			d := wait(w, "the backoff", clock.made)
			if d < base || d > base+base/2 {
				t.Errorf("a delay of %v, want %v to %v", d, base, base+base/2)
			}
			runs[i] += fmt.Sprint(d, " ")
			base = min(2*base, 120)
			settle(w, r)
			if n := w.Stats().Restarts; n != restarts {
				t.Errorf("%d restarts before the delay has passed, want %d", n, restarts)
			}
			clock.move(d)
		}
		wait(w, "the end", r.Done())
		n := w.noticed()
		if last := n[len(n)-1]; len(n) != 6 || !errors.Is(last.Err, errBoom) || last.Restarts {
			t.Errorf("notices %+v, want five failures and the end with the cause", n)
		}
		expect(t, "dead letters", w.dead(), []string{"never: actor: stopped\nboom"})
		st, want := w.Stats(), Stats{Spawned: 1, Failures: 6, Restarts: 5, DeadLetters: 1}
		if st.Ended = 0; st != want { // it is counted as ended a moment after Done
			t.Errorf("stats %+v, want %+v", st, want)
		}
	}
	if runs[0] != runs[1] {
		t.Errorf("the same seed gave %s and %s", runs[0], runs[1])
	}
}

// Rule: failures older than Within do not count.
func TestOldFailuresDoNotCount(t *testing.T) {
	clock := newFakeClock()
	w := newWorld(t, Config{Clock: clock})
	r := spawn[string](w, Options{Restart: Restart{Most: 1, Within: time.Hour, First: 10}}, &fragile{panic: true})
	for range 4 {
		w.must("telling", r.Tell(w.ctx, "x"))
		if d := wait(w, "the backoff", clock.made); d > 15 {
			t.Errorf("a delay of %v, want the first's", d)
		}
		clock.move(2 * time.Hour)
	}
	select {
	case <-r.Done():
		t.Error("it has ended")
	default:
	}
}

// Rule: with a negative Most nothing is restarted, and a resting actor that is stopped is not
// restarted: its mailbox is reported.
func TestNoRestart(t *testing.T) {
	clock := newFakeClock()
	w := newWorld(t, Config{Clock: clock})
	never := spawn[string](w, Options{Restart: Restart{Most: -1}}, &fragile{start: errBoom})
	wait(w, "the end", never.Done())
	rests := spawn[string](w, Options{}, &fragile{panic: true})
	w.must("telling", rests.Tell(w.ctx, "x"))
	wait(w, "the backoff", clock.made)
	w.must("telling one that rests", rests.Tell(w.ctx, "y"))
	rests.Stop()
	wait(w, "the end", rests.Done())
	expect(t, "dead letters", w.dead(), []string{
		"x: user code panicked: boom", "y: actor: stopped\nuser code panicked: boom"})
	if n := clock.waiting(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
}

// Rule: with Escalate the child's end is the parent's failure, which ends the parent's instance
// with all its children.
func TestEscalate(t *testing.T) {
	clock := newFakeClock()
	w := newWorld(t, Config{Clock: clock})
	h, other := newWhole(), newWhole()
	close(h.let)
	var kids [2]Ref[string]
	h.on["spawn"] = func(ctx *Context[string]) {
		var err error
		kids[0], err = Spawn(ctx, Options{Name: "kid", Restart: Restart{Most: -1, Escalate: true}},
			func() Handler[string] { return &fragile{panic: true} })
		w.must("spawning", err)
		kids[1], err = Spawn(ctx, Options{Name: "other"}, func() Handler[string] { return other })
		w.must("spawning", err)
		w.must("telling", kids[0].Tell(ctx, "x"))
	}
	r := spawn[string](w, Options{}, h)
	w.must("telling", r.Tell(w.ctx, "spawn"))
	d := wait(w, "the parent's backoff", clock.made)
	wait(w, "the other child", kids[1].Done())
	clock.move(d)
	w.must("telling the next instance", r.Tell(w.ctx, "y"))
	got := h.until(w, "y")
	r.Stop()
	wait(w, "the end", r.Done())
	cause := "actor: a child could not be restarted: kid: user code panicked: boom"
	expect(t, "the parent", append(got, h.logged()...), []string{"started 1", "spawn", "child kid: user code panicked: boom, restarts false",
		"stopped: " + cause, "started 2", "y", "stopped: <nil>"})
	if n := w.noticed(); !errors.Is(n[0].Err, ErrEscalated) || !errors.Is(n[0].Err, errBoom) {
		t.Errorf("the parent's failure is %v, want ErrEscalated with the child's", n[0].Err)
	}
}

// sour panics in Stopped.
type sour struct{ fragile }

func (*sour) Stopped(*Context[string], error) { panic(errBoom) }

// Rule: a panic in Stopped does not keep the actor from ending, and is reported.
func TestPanicInStopped(t *testing.T) {
	w := newWorld(t, Config{})
	r := spawn[string](w, Options{}, &sour{})
	r.Stop()
	wait(w, "the end", r.Done())
	if n := w.noticed(); len(n) != 2 || !errors.Is(n[0].Err, errBoom) {
		t.Errorf("notices %+v, want the panic and the end", n)
	}
	if n := w.Stats().Failures; n != 1 {
		t.Errorf("%d failures were counted, want 1", n)
	}
}

// Rule: a delay is extended by any time from nothing to a half of it.
func TestDelaysAreSpread(t *testing.T) {
	const first = 1000
	w := newWorld(t, Config{Clock: newFakeClock()})
	a := &core{sys: w.System, random: rand.New(rand.NewPCG(1, 1)), opt: Options{Restart: Restart{Most: 1, First: first, Last: first}}}
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	for range 1000 {
		a.failures = nil
		if !a.judge() {
			t.Fatal("the first failure ends the actor")
		}
		least, most = min(least, a.delay), max(most, a.delay)
	}
	if least > first*11/10 || most < first*14/10 || least < first || most > first*3/2 {
		t.Errorf("1000 delays lie between %d and %d, want about all of %d to %d", least, most, first, first*3/2)
	}
}

// Rule: the longest wait before a restart is extended as far as a duration reaches, not past it to a wait of nothing.
func TestTheLongestDelayIsNotExtendedPastItself(t *testing.T) {
	w := newWorld(t, Config{Clock: newFakeClock()})
	for _, first := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64/3*2 + 2} {
		a := &core{sys: w.System, random: rand.New(rand.NewPCG(1, 1)), opt: Options{Restart: Restart{Most: 5, Within: 1, First: first, Last: math.MaxInt64}}}
		for n := range 4 {
			if !a.judge() {
				t.Fatal("a failure within Most ends the actor")
			}
			if a.delay < first {
				t.Errorf("the wait %d is %d, want at least First, which is %d", n, a.delay, first)
			}
		}
	}
}

// Rule: a parent that is busy while its child restarts again and again has one event of it waiting, which reports
// all of its failures and the last error, and then the event of the child's end.
func TestABusyParentGetsOneEventOfManyFailures(t *testing.T) {
	const restarts = 200
	w := newWorld(t, Config{})
	var failures int
	var kid Ref[string]
	h := &listener{events: make(chan ChildEvent, 2*restarts)}
	h.receive = func(ctx *Context[string]) {
		var err error
		kid, err = Spawn(ctx, Options{Restart: Restart{Most: restarts, First: 1, Last: 1, Within: time.Hour}}, func() Handler[string] {
			failures++
			panic(failures)
		})
		w.must("spawning", err)
		wait(w, "the end of the child", kid.Done())
	}
	r := spawn[string](w, Options{}, h)
	w.must("telling", r.Tell(w.ctx, "go"))
	first, second := wait(w, "the failures", h.events), wait(w, "the end", h.events)
	if first.Failures != restarts || !first.Restarts || !strings.HasSuffix(fmt.Sprint(first.Err), fmt.Sprint(": ", restarts)) {
		t.Errorf("the first event is %+v, want %d failures with the error of the last", first, restarts)
	}
	if second.Failures != 0 || second.Restarts || !strings.HasSuffix(fmt.Sprint(second.Err), fmt.Sprint(": ", restarts+1)) {
		t.Errorf("the second event is %+v, want the end of the child", second)
	}
}

// listener is a handler that passes on the events of its children.
type listener struct {
	receive func(ctx *Context[string])
	events  chan ChildEvent
}

func (l *listener) Receive(ctx *Context[string], _ string)  { l.receive(ctx) }
func (l *listener) Child(_ *Context[string], ev ChildEvent) { l.events <- ev }

// worse fails in Receive and panics in Stopped.
type worse struct{ fragile }

var errWorse = errors.New("worse")

func (*worse) Stopped(*Context[string], error) { panic(errWorse) }

// Rule: a panic in Stopped does not hide the failure that it follows from a parent that is busy.
func TestPanicInStoppedDoesNotHideTheFailure(t *testing.T) {
	clock := newFakeClock()
	w := newWorld(t, Config{Clock: clock})
	h := &listener{events: make(chan ChildEvent, 9)}
	var delay time.Duration
	h.receive = func(ctx *Context[string]) {
		kid, err := Spawn(ctx, Options{}, func() Handler[string] { return &worse{fragile{panic: true}} })
		w.must("spawning", err)
		w.must("telling", kid.Tell(ctx, "x"))
		delay = wait(w, "the backoff", clock.made)
	}
	r := spawn[string](w, Options{}, h)
	w.must("telling", r.Tell(w.ctx, "go"))
	if ev := wait(w, "the failures", h.events); !errors.Is(ev.Err, errBoom) || !errors.Is(ev.Err, errWorse) || ev.Failures != 2 || ev.Delay != delay {
		t.Errorf("the event is %+v, want both errors, 2 failures and the delay %v", ev, delay)
	}
}
