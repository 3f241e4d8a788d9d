//go:build verbena_model

package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// fakeOp is an operation of the model: submitted, posted, completed, settled.
type fakeOp struct{ waiter *fakeWaiter }

// fakeWorld is a reactor's work against a device that completes when it likes.
type fakeWorld struct {
	tok       *Token
	submitted []*fakeOp
	posted    []*fakeOp
	cq        []*fakeOp
	armed     bool
	event     bool // readable channel
	bell      bool
	errand    int
	ran       int
	holder    string
	waiters   []*fakeWaiter
	pollOnly  bool // a mutation of the sleeper is not needed; see tests
}

func (f *fakeWorld) Turn(arm bool) bool {
	e := theExplorer
	me := e.cur.name
	if f.holder != "" {
		e.fail("two holders at once: %s and %s", f.holder, me)
	}
	f.holder = me
	yield("turn.mid")
	f.holder = ""
	did := false
	if len(f.submitted) > 0 {
		f.posted = append(f.posted, f.submitted...)
		f.submitted = nil
		did = true
	}
	if arm && len(f.posted)+len(f.cq) > 0 && !f.armed {
		f.armed = true
	}
	for _, op := range f.cq {
		op.waiter.settled = true
		did = true
	}
	f.cq = nil
	return did
}

func (f *fakeWorld) Pending() bool     { return len(f.submitted) > 0 }
func (f *fakeWorld) Outstanding() bool { return len(f.posted) > 0 }

// Errands: as in the reactor, channel events are drained by the loop.
func (f *fakeWorld) Errands() bool       { return f.errand > 0 }
func (f *fakeWorld) Deadline() time.Time { return time.Time{} }

func (f *fakeWorld) Run() func() {
	f.errand--
	f.ran++
	return func() { yield("user.code") }
}

func (f *fakeWorld) Ring() { f.bell = true }

func (f *fakeWorld) Wait(time.Time) Wake {
	block("loop.wait", func() bool { return f.bell || f.event })
	f.bell = false
	if f.event {
		f.event = false // drained; the reactor drains it holding the turn
		return WakeEvent
	}
	return 0
}

// device completes what is posted, in order, whenever it likes.
func (f *fakeWorld) device(n int) {
	for range n {
		block("dev.complete", func() bool { return len(f.posted) > 0 })
		f.cq = append(f.cq, f.posted[0])
		f.posted = f.posted[1:]
		if f.armed {
			f.armed, f.event = false, true
		}
	}
}

func (f *fakeWorld) submit(quiet bool) *fakeWaiter {
	yield("submit.push")
	w := &fakeWaiter{}
	f.waiters = append(f.waiters, w)
	f.submitted = append(f.submitted, &fakeOp{waiter: w})
	if quiet {
		f.tok.Quiet()
	} else {
		f.tok.Submitted()
	}
	return w
}

func (f *fakeWorld) shared() string {
	var b strings.Builder
	fmt.Fprintf(&b, "word=%d sub=%d post=%d cq=%d armed=%t ev=%t bell=%t err=%d/%d baton=%d holder=%s",
		f.tok.word.Load(), len(f.submitted), len(f.posted), len(f.cq), f.armed, f.event, f.bell, f.errand, f.ran, len(f.tok.baton), f.holder)
	for _, w := range f.waiters {
		fmt.Fprintf(&b, " w(%t,%t,%t,%t)", w.parked, w.settled, w.offered, w.cancelled)
	}
	for i := range 3 {
		fmt.Fprintf(&b, " s%d", f.tok.seats[i].word.Load())
	}
	return b.String()
}

// seen is what a step reads; a step that is not listed reads everything.
func (f *fakeWorld) seen(label string) string {
	switch label {
	case "take", "take.cas", "submitted", "ring.cas", "release.cas", "wanted.cas", "pass.cas", "want.cas", "release.retake", "drive.recheck":
		return fmt.Sprint(f.tok.word.Load())
	case "release.pending":
		return fmt.Sprint(f.Pending())
	case "submit.push", "user.code", "want.baton", "dev.complete", "loop.after":
		return ""
	}
	return f.shared()
}

func (f *fakeWorld) forget(label string) bool {
	return label == "loop.wait" || label == "dev.complete"
}

// end: no interleaving may stop with an operation, an errand or a waiter
// unattended.
func (f *fakeWorld) end(blocked []string) error {
	if len(f.submitted)+len(f.posted)+len(f.cq)+f.errand > 0 {
		return fmt.Errorf("lost wake-up: everybody sleeps with work left; blocked: %v", blocked)
	}
	for _, b := range blocked {
		if b != "loop@loop.wait" {
			return fmt.Errorf("stuck: %v", blocked)
		}
	}
	if w := f.tok.word.Load(); w != asleep {
		return fmt.Errorf("ended with word %d, want asleep", w)
	}
	return nil
}

type fakeWaiter struct{ parked, settled, offered, cancelled bool }

func (w *fakeWaiter) Settled() bool { return w.settled }

func (w *fakeWaiter) Park(ctx context.Context) Signal {
	w.parked = true
	block("park", func() bool { return w.settled || w.offered || w.cancelled })
	w.parked = false
	switch {
	case w.offered:
		w.offered = false
		return SignalTurn
	case w.settled:
		return SignalSettled
	}
	return SignalCancelled
}

func (w *fakeWaiter) Offer() bool {
	if !w.parked || w.settled || w.cancelled {
		return false
	}
	w.offered = true
	return true
}

func (w *fakeWaiter) TakeOffer() bool {
	got := w.offered
	w.offered = false
	return got
}

// fakeCtx ends when the model says so.
type fakeCtx struct {
	context.Context
	w *fakeWaiter
}

func (c fakeCtx) Err() error {
	if c.w != nil && c.w.cancelled {
		return context.Canceled
	}
	return nil
}

// crew builds a world with a loop, a device and the given callers.
func crew(driving bool, ops int, callers ...func(f *fakeWorld)) scenario {
	return scenario{build: func() world {
		f := &fakeWorld{}
		f.tok = New(f, f, Config{CallerDriving: driving})
		w := world{shared: f.shared, seen: f.seen, forget: f.forget, end: f.end}
		w.names = append(w.names, "loop", "device")
		w.bodies = append(w.bodies, f.tok.Loop, func() { f.device(ops) })
		for i, c := range callers {
			w.names = append(w.names, fmt.Sprintf("caller%d", i))
			w.bodies = append(w.bodies, func() { c(f) })
		}
		return w
	}}
}

// syncCaller posts and waits, driving where it can.
func syncCaller(f *fakeWorld) {
	w := f.submit(true)
	if err := f.tok.Drive(fakeCtx{}, w); err != nil || !w.settled {
		theExplorer.fail("Drive returned %v with settled=%t, want its own operation settled", err, w.settled)
	}
}

// asyncCaller posts, rings, and then waits.
func asyncCaller(f *fakeWorld) {
	w := f.submit(false)
	if err := f.tok.Drive(fakeCtx{}, w); err != nil || !w.settled {
		theExplorer.fail("Drive returned %v with settled=%t, want its own operation settled", err, w.settled)
	}
}

// postAndGo posts, rings, and never looks again.
func postAndGo(f *fakeWorld) { f.submit(false) }

// cancelling posts and waits; its context may end at any moment.
func cancelling(f *fakeWorld) {
	w := f.submit(false)
	w.cancelled = true
	err := f.tok.Drive(fakeCtx{w: w}, w)
	if err == nil && !w.settled {
		theExplorer.fail("Drive returned nil for an operation that is not settled")
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		theExplorer.fail("Drive returned %v, want the context's error", err)
	}
}

// commander leaves an errand, which only the loop may do.
func commander(f *fakeWorld) {
	yield("submit.push")
	f.errand++
	f.submitted = append(f.submitted, &fakeOp{waiter: &fakeWaiter{}})
	f.tok.Submitted()
}

const stateLimit = 3_000_000

func scenarios() map[string]scenario {
	return map[string]scenario{
		"one synchronous caller":           crew(true, 1, syncCaller),
		"one caller, driving off":          crew(false, 1, syncCaller),
		"fire and forget":                  crew(true, 1, postAndGo),
		"two synchronous callers":          crew(true, 2, syncCaller, syncCaller),
		"synchronous and asynchronous":     crew(true, 2, syncCaller, asyncCaller),
		"synchronous and fire and forget":  crew(true, 2, syncCaller, postAndGo),
		"a cancelled wait beside a caller": crew(true, 2, syncCaller, cancelling),
		"an errand beside a caller":        crew(true, 2, syncCaller, commander),
	}
}

// Rule: whatever the interleaving, one holder at a time, and nobody sleeps
// while an operation, an errand or a waiter is left.
func TestEveryInterleaving(t *testing.T) {
	for name, sc := range scenarios() {
		t.Run(name, func(t *testing.T) {
			n, err := explore(t, sc, stateLimit)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states", n)
		})
	}
}

// Rule: each defence is needed. Without it the model finds the lost wake-up.
func TestEveryDefenceIsNeeded(t *testing.T) {
	defer func() { mutant = 0 }()
	for m, name := range map[int]string{mutantNoRecheck: "recheck after release", mutantNoArm: "arm before sleep"} {
		t.Run(name, func(t *testing.T) {
			mutant = m
			for _, sc := range scenarios() {
				if _, err := explore(t, sc, stateLimit); err != nil {
					return
				}
			}
			t.Fatalf("no interleaving fails without %q: the model does not see what it is for", name)
		})
	}
}
