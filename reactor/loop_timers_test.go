package reactor_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// clock is a virtual clock; the test's goroutine owns it.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

// stepAt sets the clock to start+at and calls Step twice. A call of Reactor.After only submits a timer.
// The first Step adds the timer to the reactor's timers, and the second Step runs it if it is due.
func (c *clock) stepAt(r *reactor.Reactor, start time.Time, at time.Duration) {
	c.now = start.Add(at)
	r.Step()
	r.Step()
}

// Rule: a timer does not run before it is due. The earliest timer runs first; timers with the same
// time run in the order in which they were set. A stopped timer never runs.
func TestTimersRunInOrder(t *testing.T) {
	for name, start := range map[string]time.Time{
		"now": time.Unix(1_700_000_000, 0), "epoch": time.Unix(0, 0), "zero": {}, // the rule holds for any start time of the clock
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{start}
			l := newLone(t, reactor.Config{Stepped: true, Now: c.Now}, nil)
			defer l.close(t)
			var ran []string
			mark := func(s string) func() { return func() { ran = append(ran, s) } }
			want := func(when string, names ...string) {
				t.Helper()
				if !slices.Equal(ran, names) {
					t.Fatalf("%s the timers %v ran, want %v", when, ran, names)
				}
				ran = nil
			}
			const ms = time.Millisecond
			l.r.After(30*ms, mark("c"))
			l.r.After(10*ms, mark("a"))
			stopped := l.r.After(10*ms, mark("stopped"))
			l.r.After(10*ms, mark("b"))
			unset := l.r.After(ms, mark("stopped before it was set"))
			l.r.StopTimer(unset)
			l.r.After(0, mark("at once"))
			l.r.After(-time.Hour, mark("late"))
			c.stepAt(l.r, start, 0)
			want("at 0", "late", "at once")
			if next := l.r.NextTimer(); !next.Equal(start.Add(10 * ms)) {
				t.Errorf("NextTimer returned %v, want 10 ms after %v", next, start)
			}
			c.stepAt(l.r, start, 10*ms-1)
			want("before 10 ms")
			l.r.StopTimer(stopped)
			c.stepAt(l.r, start, 10*ms)
			want("at 10 ms", "a", "b")
			l.r.StopTimer(stopped) // stopping a timer again, after its time, has no effect
			var victim *reactor.Timer
			l.r.After(5*ms, func() { mark("stops another")(); l.r.StopTimer(victim); l.r.After(0, mark("set by a timer")) })
			victim = l.r.After(5*ms, mark("victim"))
			l.r.Step()
			c.stepAt(l.r, start, time.Second) // all are due
			want("at 1 s", "stops another", "c", "set by a timer")
			if next := l.r.NextTimer(); !next.IsZero() {
				t.Errorf("NextTimer returned %v, want the zero time", next)
			}
		})
	}
}

// Rule: a timer whose time is too large for a time.Duration never runs, does not keep the loop
// awake, and does not delay other timers.
func TestATimerInForEver(t *testing.T) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	stepped := newLone(t, reactor.Config{Stepped: true, Now: c.Now}, nil)
	defer stepped.close(t)
	c.now = c.now.Add(time.Hour) // one hour + MaxInt64 overflows
	stepped.r.After(math.MaxInt64, func() { t.Error("a timer that is due in 292 years ran") })
	for range 3 {
		stepped.r.Step()
	}
	if next := stepped.r.NextTimer(); !next.IsZero() {
		t.Errorf("NextTimer returned %v, want the zero time", next)
	}
	if stepped.r.Step() {
		t.Error("Step returned true with nothing to do, want false")
	}

	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	l.r.After(math.MaxInt64, func() { t.Error("a timer that is due in 292 years ran") })
	must.Do(t, l.r.Do(bounded(t), func() {})) // the timer is set now
	before := l.r.Stats()
	ran := make(chan struct{})
	l.r.After(50*time.Millisecond, func() { close(ran) })
	comes(t, "the timer of 50 ms", ran)
	// The wait, a wake-up or two and the call of Stats take a few passes. A spinning loop would run
	// thousands of passes.
	const some = 100
	if n := l.r.Stats().Passes - before.Passes; n > some {
		t.Errorf("%d passes in 50 ms without work, want at most %d", n, some)
	}
}

// source is an event source that always has an event.
type source struct{ called int }

func (*source) FD() int { return -1 }

func (*source) Notify(ring func()) {
	if ring != nil {
		ring()
	}
}

var _ verbs.Source = (*source)(nil)

// Rule: a handler may unwatch its own source and other sources. The handler of an unwatched source
// is not called.
func TestAHandlerMayUnwatchOthers(t *testing.T) {
	l := newLone(t, reactor.Config{Stepped: true}, nil)
	var self, other, last source
	must.Do(t, l.r.Watch(&self, func() {
		self.called++
		try(t, l.r.Unwatch(&other))
		try(t, l.r.Unwatch(&self))
	}))
	must.Do(t, l.r.Watch(&other, func() { other.called++ }))
	must.Do(t, l.r.Watch(&last, func() { last.called++ }))
	for range 3 {
		l.r.Step()
	}
	if self.called != 1 || other.called != 0 || last.called != 3 {
		t.Errorf("in 3 steps the handlers were called %d, %d and %d times; want 1, 0 and 3", self.called, other.called, last.called)
	}
	must.Do(t, l.r.Unwatch(&last))
	l.close(t)
}
