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
	// cancels reports whether another actor (a goroutine of the model) ends the caller's context, at
	// any time.
	cancels bool
}

// submit pushes an operation of the caller with the number me. If quiet is true, submit does not wake
// the loop. If timed is true, the operation only sets a timer.
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

// await waits for w by Drive.
func (f *fakeWorld) await(w *fakeWaiter) {
	f.tok.Drive(w.done, w)
	f.waited(w)
}

// waited checks that w was settled or canceled before its wait ended.
func (f *fakeWorld) waited(w *fakeWaiter) {
	w.left = true
	if !w.settled && !w.cancelled {
		model.Failf("a wait ended before its operation was settled or its context was canceled")
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
	// poster submits without a wake-up, and tries to run a pass. Where it cannot, it wakes the loop.
	poster = script{kind: "post", ops: 1, body: func(f *fakeWorld, me int) {
		f.submit(me, true, false)
		if !f.tok.TryPass() {
			f.tok.Submitted()
		}
	}}
	// poller tries to run a pass. It has submitted nothing.
	poller = script{kind: "poll", body: func(f *fakeWorld, me int) { f.tok.TryPass() }}
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

// scenario makes a world for the model to search.
type scenario = func() model.World

// crew returns a scenario with a loop, a device and the given callers.
func crew(cfg Config, callers ...script) scenario { return crewWith(cfg, nil, callers...) }

// crewWith is like crew. If more is not nil, crewWith calls more to change the world.
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

// closing adds an actor that closes the reactor when all waiters are settled. The
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

// busy, arrives, passed, oneByOne and deafTimer set the fields of fakeWorld with these names.
func busy(f *fakeWorld)      { f.busy = true }
func arrives(f *fakeWorld)   { f.arrives = true }
func passed(f *fakeWorld)    { f.passed = true }
func oneByOne(f *fakeWorld)  { f.oneByOne = true }
func deafTimer(f *fakeWorld) { f.deafTimer = true }
func twoSeats(f *fakeWorld)  { f.tok.slots = f.tok.slots[:2] } // two waiter slots, so that two waiters can be offered the turn

// scenarios returns the scenarios without lone callers (lone_model_test.go). Every
// test run searches all of them. The model has no clock. So Config.Spin limits the rounds of spinning
// even with SpinTimed (spin_budget_model.go).
func scenarios() map[string]scenario {
	on, off := Config{CallerDriving: true}, Config{}
	spin := Config{CallerDriving: true, Spin: 1}
	watch, watchOff := Config{CallerDriving: true, SpinMode: SpinTimed}, Config{SpinMode: SpinTimed}
	watchTwice := Config{CallerDriving: true, SpinMode: SpinTimed, Spin: 1}
	always, alwaysOff := Config{CallerDriving: true, SpinMode: SpinAlways}, Config{SpinMode: SpinAlways}
	return map[string]scenario{
		"one synchronous caller":                               crew(on, syncCaller),
		"one caller, Spin 1":                                   crew(spin, syncCaller),
		"one caller, driving off":                              crew(off, syncCaller),
		"two callers, driving off":                             crew(off, syncCaller, postAndGo),
		"a caller that does not wait":                          crew(on, postAndGo),
		"two synchronous callers":                              crew(on, syncCaller, syncCaller),
		"two synchronous callers, Spin 1":                      crew(spin, syncCaller, syncCaller),
		"a synchronous and an asynchronous caller":             crew(on, syncCaller, asyncCaller),
		"a synchronous caller and a caller that does not wait": crew(on, syncCaller, postAndGo),
		"a cancelled wait beside a caller":                     crew(on, syncCaller, cancelled),
		"two waiter slots":                                     crewWith(on, twoSeats, syncCaller, syncCaller),
		"a loop task beside a caller":                          crew(on, syncCaller, commander),
		"loop tasks, driving off":                              crew(off, postAndGo, commander),
		"a timer beside a caller":                              crew(on, syncCaller, timed),
		"a timer, driving off":                                 crew(off, postAndGo, timed),
		"a loop task that the caller waits for":                crewWith(on, busy, syncCaller, commander),
		"a timer that the caller waits for":                    crewWith(on, busy, syncCaller, timed),
		"WithTurn beside a caller":                             crew(on, syncCaller, controller),
		"WithTurn and a loop task beside a caller":             crew(on, syncCaller, controller, commander),
		"closing after a caller":                               crewWith(on, closing, syncCaller),
		"closing after two callers":                            crewWith(on, closing, syncCaller, syncCaller),

		"events arrive: one synchronous caller":                 crewWith(on, arrives, syncCaller),
		"events arrive: one caller, Spin 1":                     crewWith(spin, arrives, syncCaller),
		"events arrive: driving off":                            crewWith(off, arrives, syncCaller, postAndGo),
		"events arrive: a caller that does not wait":            crewWith(on, arrives, postAndGo),
		"events arrive: two synchronous callers":                crewWith(on, arrives, syncCaller, syncCaller),
		"events arrive: a caller beside one that does not wait": crewWith(on, arrives, syncCaller, postAndGo),
		"events arrive: a cancelled wait":                       crewWith(on, arrives, cancelled),
		"events arrive: a loop task beside a caller":            crewWith(on, arrives, syncCaller, commander),
		"events arrive: WithTurn beside a caller":               crewWith(on, arrives, syncCaller, controller),
		"events arrive: closing after a caller":                 crewWith(on, func(f *fakeWorld) { arrives(f); closing(f) }, syncCaller),
		"events arrive: SpinTimed":                              crewWith(watch, arrives, syncCaller, postAndGo),

		"events passed on: one synchronous caller":                 crewWith(on, passed, syncCaller),
		"events passed on: one caller, Spin 1":                     crewWith(spin, passed, syncCaller),
		"events passed on: driving off":                            crewWith(off, passed, syncCaller, postAndGo),
		"events passed on: two synchronous callers":                crewWith(on, passed, syncCaller, syncCaller),
		"events passed on: a caller beside one that does not wait": crewWith(on, passed, syncCaller, postAndGo),
		"events passed on: a cancelled wait":                       crewWith(on, passed, cancelled),
		"events passed on: a loop task beside a caller":            crewWith(on, passed, syncCaller, commander),
		"events passed on: a timer beside a caller":                crewWith(on, passed, syncCaller, timed),
		"events passed on: WithTurn beside a caller":               crewWith(on, passed, syncCaller, controller),
		"events passed on: closing after a caller":                 crewWith(on, func(f *fakeWorld) { passed(f); closing(f) }, syncCaller),
		"events passed on: callers that post and poll":             crewWith(on, passed, poster, poller),
		"events passed on: SpinTimed":                              crewWith(watch, passed, syncCaller, postAndGo),
		"events passed on: SpinAlways":                             crewWith(always, passed, syncCaller, syncCaller),

		"a caller that posts":                               crew(on, poster),
		"a caller that posts, driving off":                  crew(off, poster),
		"a caller that posts beside a synchronous caller":   crew(on, poster, syncCaller),
		"a caller that posts beside one that polls":         crew(on, poster, poller),
		"a caller that polls beside one that does not wait": crew(on, poller, postAndGo),
		"a caller that polls beside a synchronous caller":   crew(on, poller, syncCaller),
		"completions one by one: a synchronous caller":      crewWith(on, oneByOne, syncCaller, postAndGo),
		"completions one by one: a caller that polls":       crewWith(on, oneByOne, poller, postAndGo, postAndGo),
		"a caller that polls beside a loop task":            crew(on, poller, commander),
		"a caller that polls beside a timer":                crew(on, poller, timed),
		"a caller that polls beside WithTurn":               crew(on, poller, controller),
		"events arrive: callers that post and poll":         crewWith(on, arrives, poster, poller),
		"SpinTimed: callers that post and poll":             crew(watch, poster, poller),
		"SpinAlways: callers that post and poll":            crew(always, poster, poller),

		"SpinTimed: one synchronous caller":      crew(watch, syncCaller),
		"SpinTimed: one caller, Spin 1":          crew(watchTwice, syncCaller),
		"SpinTimed: driving off":                 crew(watchOff, syncCaller, postAndGo),
		"SpinTimed: a caller that does not wait": crew(watch, postAndGo),
		"SpinTimed: two synchronous callers":     crew(watch, syncCaller, syncCaller),
		"SpinTimed: a loop task beside a caller": crew(watch, syncCaller, commander),
		"SpinTimed: a timer beside a caller":     crew(watch, syncCaller, timed),
		"SpinTimed: WithTurn beside a caller":    crew(watch, syncCaller, controller),
		"SpinTimed: closing after a caller":      crewWith(watch, closing, syncCaller),

		"SpinAlways: one synchronous caller":           crew(always, syncCaller),
		"SpinAlways: driving off":                      crew(alwaysOff, syncCaller, postAndGo),
		"SpinAlways: a caller that does not wait":      crew(always, postAndGo),
		"SpinAlways: two synchronous callers":          crew(always, syncCaller, syncCaller),
		"SpinAlways: a cancelled wait beside a caller": crew(always, syncCaller, cancelled),
		"SpinAlways: a loop task beside a caller":      crew(always, syncCaller, commander),
		"SpinAlways: a timer beside a caller":          crew(always, syncCaller, timed),
		"SpinAlways: WithTurn beside a caller":         crew(always, syncCaller, controller),
		"SpinAlways: closing after a caller":           crewWith(always, closing, syncCaller),
	}
}

// large returns the scenarios that are searched only if VERBENA_MODEL=all. That search
// takes minutes.
func large() map[string]scenario {
	on, watch := Config{CallerDriving: true}, Config{CallerDriving: true, SpinMode: SpinTimed}
	return map[string]scenario{
		"three synchronous callers":                               crew(on, syncCaller, syncCaller, syncCaller),
		"two synchronous callers and a caller that does not wait": crew(on, syncCaller, syncCaller, postAndGo),
		"WithTurn beside two callers":                             crew(on, syncCaller, syncCaller, controller),
		"two cancelled waits":                                     crew(on, cancelled, cancelled),
		"a loop task beside two callers":                          crew(on, syncCaller, syncCaller, commander),
		"a timer beside two callers":                              crew(on, syncCaller, syncCaller, timed),
		"two waiter slots, cancelled":                             crewWith(on, twoSeats, syncCaller, cancelled),
		"SpinTimed: a synchronous and an asynchronous caller":     crew(watch, syncCaller, asyncCaller),
		"SpinTimed: a cancelled wait beside a caller":             crew(watch, syncCaller, cancelled),
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
