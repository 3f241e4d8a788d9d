//go:build verbena_model

package turn

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is what one caller does.
type script struct {
	kind string
	ops  int // that the device must complete
	body func(f *fakeWorld, me int)
	// cancels: somebody ends the caller's context at some time.
	cancels bool
}

// submit pushes an operation.
func (f *fakeWorld) submit(me int, quiet, timed bool) *fakeWaiter {
	yield("push")
	w := f.waiters[me]
	w.submitted = true
	f.inbox = append(f.inbox, &op{caller: me, waiter: w, timed: timed})
	if quiet {
		f.tok.Quiet()
	} else {
		f.tok.Submitted()
	}
	return w
}

func (f *fakeWorld) await(w *fakeWaiter) {
	f.tok.Drive(nil, w)
	f.waited(w)
}

// waited: the caller's wait is over.
func (f *fakeWorld) waited(w *fakeWaiter) {
	w.left = true
	if !w.settled && !w.cancelled {
		on.fail("the wait ended for an operation that is not settled, and nobody had cancelled it")
	}
}

// The callers.
var (
	// posts and waits at once, driving where it can
	syncCaller = script{kind: "sync", ops: 1, body: func(f *fakeWorld, me int) {
		f.await(f.submit(me, true, false))
	}}
	// posts, rings, and then waits
	asyncCaller = script{kind: "async", ops: 1, body: func(f *fakeWorld, me int) {
		f.await(f.submit(me, false, false))
	}}
	// posts, rings, and never looks again
	postAndGo = script{kind: "go", ops: 1, body: func(f *fakeWorld, me int) {
		f.submit(me, false, false)
	}}
	// as sync; its context may end at any moment
	cancelled = script{kind: "cancelled", ops: 1, cancels: true, body: func(f *fakeWorld, me int) {
		f.await(f.submit(me, true, false))
	}}
	// leaves a function that only the loop runs
	commander = script{kind: "command", body: func(f *fakeWorld, me int) {
		yield("push")
		f.calls++
		f.tok.Submitted()
	}}
	// leaves work that sets a timer
	timed = script{kind: "timed", body: func(f *fakeWorld, me int) { f.submit(me, false, true) }}
	// does something itself that needs the turn
	controller = script{kind: "control", body: func(f *fakeWorld, me int) {
		f.tok.WithTurn(func() { yield("fn") })
	}}
)

// scenario is a world to be searched.
type scenario struct {
	build  func() world
	orders [][]int // see explorer
}

// crew builds a world of a loop, a device and these callers.
func crew(cfg Config, callers ...script) scenario { return crewWith(cfg, nil, callers...) }

func crewWith(cfg Config, more func(f *fakeWorld), callers ...script) scenario {
	kinds := []string{}
	for _, c := range callers {
		kinds = append(kinds, c.kind)
	}
	return scenario{orders: permutations(kinds), build: func() world {
		f := &fakeWorld{}
		f.tok = New(f, f, cfg)
		stirs = f.stirs
		ops := 0
		f.cast = append(f.cast, &actor{name: "loop", owner: -1, body: f.tok.Loop})
		for i, c := range callers {
			ops += c.ops
			w := &fakeWaiter{f: f, caller: i, cancels: c.cancels}
			f.waiters = append(f.waiters, w)
			f.cast = append(f.cast, &actor{name: fmt.Sprintf("%s%d", c.kind, i), owner: i, body: func() { c.body(f, i) }})
			if c.cancels {
				f.cast = append(f.cast, &actor{name: fmt.Sprintf("cancel%d", i), owner: i, body: func() {
					block("cancel", func() bool { return w.submitted && !w.left })
					w.cancelled = true
				}})
			}
			switch c.kind {
			case "command":
				f.toRun++
			case "timed":
				f.timed = true
				f.cast = append(f.cast, &actor{name: "clock", owner: -1, body: func() { yield("tick"); f.now = true }})
			}
		}
		if ops > 0 {
			f.cast = append(f.cast, &actor{name: "device", owner: -1, body: func() { f.device(ops) }})
		}
		if more != nil {
			more(f)
		}
		return f
	}}
}

// closing closes the reactor once everything is settled: holding the turn, so
// that no driver is in the middle of one, and then the sleeper.
func closing(f *fakeWorld) {
	f.cast = append(f.cast, &actor{name: "closer", owner: -1, body: func() {
		block("settled.all", func() bool {
			for _, w := range f.waiters {
				if !w.settled {
					return false
				}
			}
			return true
		})
		phase(1)
		f.tok.WithTurn(func() { yield("fn") })
		phase(2)
		yield("close")
		f.closed = true
	}})
}

func busy(f *fakeWorld)      { f.busy = true }
func deafTimer(f *fakeWorld) { f.deafTimer = true }
func twoSeats(f *fakeWorld)  { f.tok.seatCount = 2 }

// stateLimit keeps a scenario that grew from taking for ever.
const stateLimit = 8_000_000

// scenarios are searched at every test, with those of lone callers.
func scenarios() map[string]scenario {
	on, off := Config{CallerDriving: true}, Config{}
	spin := Config{CallerDriving: true, Spin: 1}
	watch, watchOff := Config{CallerDriving: true, Spinning: SpinBudget}, Config{Spinning: SpinBudget}
	watchTwice := Config{CallerDriving: true, Spinning: SpinBudget, Spin: 1}
	always, alwaysOff := Config{CallerDriving: true, Spinning: SpinAlways}, Config{Spinning: SpinAlways}
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

// large scenarios are searched if VERBENA_MODEL=all; that takes minutes.
func large() map[string]scenario {
	on, watch := Config{CallerDriving: true}, Config{CallerDriving: true, Spinning: SpinBudget}
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

// Rule: whatever the interleaving, one holder at a time, nobody sleeps while an
// operation, an errand or a waiter is left, and every schedule ends.
func TestEveryInterleaving(t *testing.T) {
	total, start := 0, time.Now()
	all := scenarios()
	maps.Copy(all, loneScenarios())
	if os.Getenv("VERBENA_MODEL") == "all" {
		maps.Copy(all, large())
		maps.Copy(all, loneLarge())
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			n, err := explore(t, all[name], stateLimit)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		})
	}
	t.Logf("%d states in %d scenarios, %v", total, len(all), time.Since(start).Round(time.Millisecond))
}

// defence is what a mutant takes out, or a scenario leaves out.
type defence struct {
	mutant int
	name   string
	sc     scenario
	want   string // in the rule that breaks
}

// Rule: each defence is needed. Without it some interleaving breaks a rule, and
// the scenario named here has one.
func TestEveryDefenceIsNeeded(t *testing.T) {
	defer func() { mutant = noMutant }()
	on, watch, always := Config{CallerDriving: true}, Config{CallerDriving: true, Spinning: SpinBudget}, Config{CallerDriving: true, Spinning: SpinAlways}
	for _, m := range append(loneDefences(), []defence{
		{mutantNoRecheck, "look for submissions after release", crew(on, postAndGo), "lost wake-up"},
		{mutantRetakeBlind, "retake by CAS", crew(on, syncCaller, postAndGo), "hold the turn|does not hold"},
		{mutantNoArm, "arm before leaving", crew(on, postAndGo), "lost wake-up"},
		{mutantMuteBell, "write the bell", crew(on, postAndGo), "lost wake-up"},
		{mutantPassQuiet, "pass with the bell", crew(on, syncCaller, commander), "lost wake-up"},
		{mutantDropWanted, "see on leaving who wants the turn", crew(on, syncCaller, controller), "hold the turn|stuck|does not hold"},
		{mutantDriveOn, "let the loop in for a timer", crewWith(on, busy, syncCaller, timed), "livelock"},
		{mutantDriveOn, "let the loop in for an errand", crewWith(on, busy, syncCaller, commander), "livelock"},
		{mutantShyEvent, "want the turn for an event", crew(on, syncCaller, syncCaller), "livelock"},
		{mutantShyTimer, "want the turn for a timer", crew(on, syncCaller, timed), "livelock"},
		{mutantNoErrands, "look for errands on leaving", crew(on, syncCaller, timed), "lost wake-up"},
		{mutantTiredOffer, "no offer without hope", crew(on, syncCaller, syncCaller), "livelock"},
		{mutantOfferStay, "leave once an offer is accepted", crew(on, syncCaller, syncCaller), "hold the turn|does not hold"},
		{mutantStandHasty, "wait for the leaver at the seat", crew(on, syncCaller, cancelled), "Drive had returned"},
		{mutantWatchGone, "say that nobody spins any more", crew(watch, syncCaller, postAndGo), "lost wake-up"},
		{mutantWatchStore, "and keep what else the word says", crew(watch, syncCaller, controller), "hold the turn|stuck|does not hold"},
		{mutantWatchDeaf, "look at the channels while spinning", crewWith(always, closing, syncCaller), "stuck"},
		{mutantWatchShy, "want the turn for an errand while spinning", crewWith(always, busy, syncCaller, commander), "livelock|stuck|lost wake-up"},
		{mutantWatchLeaves, "come back while spinning", crew(watch, postAndGo), "lost wake-up"},
		{noMutant, "an earlier deadline is an errand", crewWith(on, deafTimer, syncCaller, timed), "lost wake-up"},
	}...) {
		t.Run(m.name, func(t *testing.T) {
			mutant = m.mutant
			defer func() { mutant = noMutant }()
			_, err := explore(t, m.sc, stateLimit)
			if err == nil {
				t.Fatal("no interleaving breaks a rule: the model does not see what this is for")
			}
			rule, trace, _ := strings.Cut(err.Error(), "\n")
			if !regexp.MustCompile(m.want).MatchString(rule) {
				t.Errorf("it breaks another rule than %q: %v", m.want, err)
			}
			t.Logf("after %d steps: %s", strings.Count(trace, "\n"), rule)
		})
	}
}
