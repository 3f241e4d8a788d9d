package actor

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

// hang is the time after which a test counts as hung.
const hang = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// world is a system with its reports.
type world struct {
	*System
	t   testing.TB
	ctx context.Context

	mu      sync.Mutex
	letters []DeadLetter
	notices []ChildEvent
}

// newWorld makes a system that is closed at the end of the test.
func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	w := &world{t: t, ctx: testContext(t)}
	cfg.DeadLetters = func(l DeadLetter) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.letters = append(w.letters, l)
	}
	cfg.Notice = func(ev ChildEvent) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notices = append(w.notices, ev)
	}
	s := must.Get(New(cfg))(t)
	w.System = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("closing the system: %v", err)
		}
	})
	return w
}

// dead returns the dead letters so far, each as "what: error".
func (w *world) dead() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.letters {
		all = append(all, fmt.Sprintf("%v: %v", l.What, l.Err))
	}
	return all
}

func (w *world) noticed() []ChildEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]ChildEvent(nil), w.notices...)
}

// spawn creates an actor without a parent.
func spawn[M any](w *world, o Options, h Handler[M]) Ref[M] {
	w.t.Helper()
	r, err := Spawn(w.System, o, func() Handler[M] { return h })
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// wait receives from ch, and fails the test if it hangs.
func wait[T any](w *world, what string, ch <-chan T) (v T) {
	w.t.Helper()
	select {
	case v = <-ch:
	case <-w.ctx.Done():
		w.t.Fatalf("%s did not come", what)
	}
	return v
}

func (w *world) must(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// settle waits until the actor has nothing to do, or has ended.
func settle[M any](w *world, r Ref[M]) {
	w.t.Helper()
	for at := running; at != idle && at != ended; at = r.cell.word.s.Load() {
		if w.ctx.Err() != nil {
			w.t.Fatalf("%s always has something to do", r.Name())
		}
		runtime.Gosched()
	}
}

// fakeClock is a clock that a test moves.
type fakeClock struct {
	mu   sync.Mutex
	now  time.Time
	due  map[*fakeTimer]struct{}
	made chan time.Duration // every After
}

type fakeTimer struct {
	at time.Time
	fn func()
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Unix(1, 0), due: map[*fakeTimer]struct{}{}, made: make(chan time.Duration, 100)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration, fn func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{c.now.Add(d), fn}
	c.due[t] = struct{}{}
	c.made <- d
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.due, t)
	}
}

// move advances the time and runs the timers that are due.
func (c *fakeClock) move(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var run []*fakeTimer
	for t := range c.due {
		if !t.at.After(c.now) {
			run = append(run, t)
			delete(c.due, t)
		}
	}
	c.mu.Unlock()
	for _, t := range run {
		t.fn()
	}
}

func (c *fakeClock) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.due)
}
