//go:build verbena_model

package turn

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// script is the program of one caller.
type script struct {
	kind string
	ops  int // operations that the device must complete
	body func(f *fakeWorld, me int)
	// If the field cancels is set, another actor (a goroutine of the model) ends the caller's
	// context at some time.
	cancels bool
}

// The method submit pushes an operation. If the argument quiet is true, it does not wake the loop.
func (f *fakeWorld) submit(me int, quiet, timed bool) *fakeWaiter {
	model.Yield("push")
	w := f.waiters[me]
	w.submitted = true
	f.inbox = append(f.inbox, &op{caller: me, waiter: w, timed: timed})
	if quiet {
		f.tok.SubmittedBeforeDrive()
	} else {
		f.tok.Submitted()
	}
	return w
}

func (f *fakeWorld) await(w *fakeWaiter) {
	f.tok.Drive(w.done, w)
	f.waited(w)
}

// The method waited checks that w was settled or canceled before its wait ended.
func (f *fakeWorld) waited(w *fakeWaiter) {
	w.left = true
	if !w.settled && !w.cancelled {
		model.Failf("the wait ended for an operation that is not settled, and nobody had cancelled it")
	}
}

// The callers.
var (
	// syncCaller submits and waits at once. It drives if it can.
	syncCaller = script{kind: "sync", ops: 1, body: func(f *fakeWorld, me int) {
		f.await(f.submit(me, true, false))
	}}
	// asyncCaller submits, wakes the loop, and then waits.
	asyncCaller = script{kind: "async", ops: 1, body: func(f *fakeWorld, me int) {
		f.await(f.submit(me, false, false))
	}}
	// postAndGo submits, wakes the loop, and does not wait.
	postAndGo = script{kind: "go", ops: 1, body: func(f *fakeWorld, me int) {
		f.submit(me, false, false)
	}}
	// The script cancelled is syncCaller with a context that may end at any moment.
	cancelled = script{kind: "cancelled", ops: 1, cancels: true, body: func(f *fakeWorld, me int) {
		f.await(f.submit(me, true, false))
	}}
	// commander submits a function that only the loop runs.
	commander = script{kind: "command", body: func(f *fakeWorld, me int) {
		model.Yield("push")
		f.calls++
		f.tok.Submitted()
	}}
	// The script timed submits work that sets a timer.
	timed = script{kind: "timed", body: func(f *fakeWorld, me int) { f.submit(me, false, true) }}
	// controller runs a function in WithTurn.
	controller = script{kind: "control", body: func(f *fakeWorld, me int) {
		f.tok.WithTurn(func() { model.Yield("fn") })
	}}
)

// A scenario makes a world for the model to search.
type scenario = func() model.World

// The function crew returns a scenario with a loop, a device and the given callers.
func crew(cfg Config, callers ...script) scenario { return crewWith(cfg, nil, callers...) }

func crewWith(cfg Config, more func(f *fakeWorld), callers ...script) scenario {
	kinds := []string{}
	for _, c := range callers {
		kinds = append(kinds, c.kind)
	}
	orders := permutations(kinds)
	return func() model.World {
		f := &fakeWorld{}
		f.World = model.World{Shared: f.shared, Reads: f.reads, Orders: orders, Check: f.check, End: f.end, Tell: f.String}
		f.tok = New(f, f, cfg)
		f.tok.slots = f.tok.slots[:1] // one slot, so that one waiter can take all slots
		stirs = f.stirs
		ops := 0
		f.Act("loop", f.tok.Loop)
		for i, c := range callers {
			ops += c.ops
			w := &fakeWaiter{f: f, caller: i}
			f.waiters = append(f.waiters, w)
			f.Act(fmt.Sprint(c.kind, i), func() { c.body(f, i) }).Owner = i
			if c.cancels {
				w.done = make(chan struct{})
				f.Act(fmt.Sprint("cancel", i), func() {
					model.Block("cancel", func() bool { return w.submitted && !w.left })
					w.cancelled = true
					close(w.done)
				}).Owner = i
			}
			switch c.kind {
			case "command":
				f.toRun++
			case "timed":
				f.timed = true
				f.Act("clock", func() { model.Yield("tick"); f.now = true })
			}
		}
		if ops > 0 {
			f.Act("device", func() { f.device(ops) })
		}
		if more != nil {
			more(f)
		}
		return f.World
	}
}

// The function closing adds an actor that closes the reactor when all waiters are settled. The
// actor first takes and releases the turn, so that no driver is in a pass. Then it closes the
// sleeper.
func closing(f *fakeWorld) {
	f.Act("closer", func() {
		model.Block("settled.all", func() bool {
			for _, w := range f.waiters {
				if !w.settled {
					return false
				}
			}
			return true
		})
		model.Forget(1)
		f.tok.WithTurn(func() { model.Yield("fn") })
		model.Forget(2)
		model.Yield("close")
		f.closed = true
	})
}

func busy(f *fakeWorld)      { f.busy = true }
func deafTimer(f *fakeWorld) { f.deafTimer = true }
func twoSeats(f *fakeWorld)  { f.tok.slots = f.tok.slots[:2] } // so a second waiter can be offered the turn

// The function scenarios returns the scenarios without lone callers (lone_model_test.go). Every
// test run searches all of them.
func scenarios() map[string]scenario {
	on, off := Config{CallerDriving: true}, Config{}
	spin := Config{CallerDriving: true, Spin: 1}
	watch, watchOff := Config{CallerDriving: true, SpinMode: SpinTimed}, Config{SpinMode: SpinTimed}
	watchTwice := Config{CallerDriving: true, SpinMode: SpinTimed, Spin: 1}
	always, alwaysOff := Config{CallerDriving: true, SpinMode: SpinAlways}, Config{SpinMode: SpinAlways}
	return map[string]scenario{
		"one synchronous caller":              crew(on, syncCaller),
		"one caller, spinning":                crew(spin, syncCaller),
		"one caller, driving off":             crew(off, syncCaller),
		"two callers, driving off":            crew(off, syncCaller, postAndGo),
		"fire and forget":                     crew(on, postAndGo),
		"two synchronous callers":             crew(on, syncCaller, syncCaller),
		"two synchronous callers, spinning":   crew(spin, syncCaller, syncCaller),
		"synchronous and asynchronous":        crew(on, syncCaller, asyncCaller),
		"synchronous and fire and forget":     crew(on, syncCaller, postAndGo),
		"a cancelled wait beside a caller":    crew(on, syncCaller, cancelled),
		"a second seat":                       crewWith(on, twoSeats, syncCaller, syncCaller),
		"an errand beside a caller":           crew(on, syncCaller, commander),
		"errands, driving off":                crew(off, postAndGo, commander),
		"a timer beside a caller":             crew(on, syncCaller, timed),
		"a timer, driving off":                crew(off, postAndGo, timed),
		"an errand that the caller waits for": crewWith(on, busy, syncCaller, commander),
		"a timer that the caller waits for":   crewWith(on, busy, syncCaller, timed),
		"control beside a caller":             crew(on, syncCaller, controller),
		"control and errand beside a caller":  crew(on, syncCaller, controller, commander),
		"closing after a caller":              crewWith(on, closing, syncCaller),
		"closing after two callers":           crewWith(on, closing, syncCaller, syncCaller),

		"watched: one synchronous caller":    crew(watch, syncCaller),
		"watched: one caller, two rounds":    crew(watchTwice, syncCaller),
		"watched: driving off":               crew(watchOff, syncCaller, postAndGo),
		"watched: fire and forget":           crew(watch, postAndGo),
		"watched: two synchronous callers":   crew(watch, syncCaller, syncCaller),
		"watched: an errand beside a caller": crew(watch, syncCaller, commander),
		"watched: a timer beside a caller":   crew(watch, syncCaller, timed),
		"watched: control beside a caller":   crew(watch, syncCaller, controller),
		"watched: closing after a caller":    crewWith(watch, closing, syncCaller),

		"always: one synchronous caller":           crew(always, syncCaller),
		"always: driving off":                      crew(alwaysOff, syncCaller, postAndGo),
		"always: fire and forget":                  crew(always, postAndGo),
		"always: two synchronous callers":          crew(always, syncCaller, syncCaller),
		"always: a cancelled wait beside a caller": crew(always, syncCaller, cancelled),
		"always: an errand beside a caller":        crew(always, syncCaller, commander),
		"always: a timer beside a caller":          crew(always, syncCaller, timed),
		"always: control beside a caller":          crew(always, syncCaller, controller),
		"always: closing after a caller":           crewWith(always, closing, syncCaller),
	}
}

// The function large returns the scenarios that are searched only if VERBENA_MODEL=all. That search
// takes minutes.
func large() map[string]scenario {
	on, watch := Config{CallerDriving: true}, Config{CallerDriving: true, SpinMode: SpinTimed}
	return map[string]scenario{
		"three synchronous callers":                 crew(on, syncCaller, syncCaller, syncCaller),
		"two synchronous and fire and forget":       crew(on, syncCaller, syncCaller, postAndGo),
		"control beside two callers":                crew(on, syncCaller, syncCaller, controller),
		"two cancelled waits":                       crew(on, cancelled, cancelled),
		"an errand beside two callers":              crew(on, syncCaller, syncCaller, commander),
		"a timer beside two callers":                crew(on, syncCaller, syncCaller, timed),
		"a second seat, cancelled":                  crewWith(on, twoSeats, syncCaller, cancelled),
		"watched: synchronous and asynchronous":     crew(watch, syncCaller, asyncCaller),
		"watched: a cancelled wait beside a caller": crew(watch, syncCaller, cancelled),
	}
}

// Rule: every interleaving ends, with no operation, loop task or waiter left. There is never more
// than one holder.
func TestModel(t *testing.T) {
	all := scenarios()
	maps.Copy(all, loneScenarios())
	if model.Large {
		maps.Copy(all, large())
		maps.Copy(all, loneLarge())
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { model.Holds(t, name, all[name]) })
	}
}
