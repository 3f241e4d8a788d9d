//go:build verbena_model

package turn

import "github.com/verbena-rdma/verbena/internal/model"

// A lone caller takes the turn before it submits. It posts its request itself, in a pass of its
// own, and waits while holding the turn (reactor.Queue.TransferWait):
//
//	            Begin                own pass
//	submitting ──────> holding ────────────────┬─ settled ──────> Leave
//	     │                                     └─ not settled ──> Resume
//	     └─ the turn has a holder ──> submit, then Drive
//
// loneWays has the functions that a lone caller calls at these steps. lone_wrong_model_test.go uses
// wrong functions in their place.
type loneWays struct {
	begin  func(*Token) bool
	turn   func(*fakeWorld)
	leave  func(*Token)
	resume func(*Token, <-chan struct{}, Parker)
	// or is called if begin has returned false. It waits for the result.
	or func(*Token, <-chan struct{}, Parker)
}

var rightLone = loneWays{
	begin:  (*Token).Begin,
	turn:   func(f *fakeWorld) { f.Pass(false) },
	leave:  (*Token).Leave,
	resume: (*Token).Resume,
	or:     (*Token).Drive,
}

// loneBy returns a lone caller that calls the given functions.
func loneBy(ways loneWays) script {
	return script{kind: "lone", ops: 1, body: func(f *fakeWorld, me int) { f.alone(me, ways) }}
}

var (
	loneCaller = loneBy(rightLone)
	// loneCancelled is loneCaller with a context that may end at any moment.
	loneCancelled = script{kind: "lone.cancelled", ops: 1, cancels: true, body: func(f *fakeWorld, me int) {
		f.alone(me, rightLone)
	}}
)

// alone() is the body of a lone caller.
func (f *fakeWorld) alone(me int, ways loneWays) {
	model.Mark("begin", 0)
	if !ways.begin(f.tok) {
		model.Mark("lone.not", 0)
		w := f.submit(me, true, false)
		ways.or(f.tok, w.done, w)
		f.waited(w)
		return
	}
	model.Mark("lone", 0)
	w := f.waiters[me]
	w.submitted = true
	f.lone = &op{caller: me, waiter: w}
	model.Yield("lone.turn")
	ways.turn(f)
	if !w.settled {
		ways.resume(f.tok, w.done, w)
		f.waited(w)
		return
	}
	ways.leave(f.tok)
	w.left = true
}

// postLone posts the request of the lone caller that holds the turn. The argument queued reports whether
// this pass has also taken submitted requests. Before postLone returns, the actor (a goroutine of
// the model) yields. So the device may complete the request before the pass polls.
func (f *fakeWorld) postLone(queued bool) {
	o := f.lone
	f.lone = nil
	if a := model.CurrentActor(); a.Owner != o.caller {
		model.Failf("%s posts the request of lone caller %d, which only this caller may post", a.Name, o.caller)
	}
	switch {
	case queued && f.oneQueue: // a pass posts only one list to a queue, so this request waits for the next pass
		f.inbox = append(f.inbox, o)
		f.tok.SubmittedBeforeDrive()
	case f.oneQueue || f.slowQueue:
		f.posted = append(f.posted, o)
	default: // this request completes first, so earlier ones may be outstanding when the lone caller calls Leave
		f.posted = append([]*op{o}, f.posted...)
	}
	model.Yield("lone.poll")
}

// oneQueue and slowQueue set the fields of fakeWorld with these names.
func oneQueue(f *fakeWorld)  { f.oneQueue = true }
func slowQueue(f *fakeWorld) { f.slowQueue = true }

// loneScenarios returns scenarios with lone callers. Every test run searches them.
func loneScenarios() map[string]scenario {
	on, off := Config{CallerDriving: true}, Config{}
	spin := Config{CallerDriving: true, Spin: 1}
	watch := Config{CallerDriving: true, SpinMode: SpinTimed}
	always := Config{CallerDriving: true, SpinMode: SpinAlways}
	return map[string]scenario{
		"lone caller":              crew(on, loneCaller),
		"lone caller, Spin 1":      crew(spin, loneCaller),
		"lone caller, driving off": crew(off, loneCaller, postAndGo),
		"lone caller, cancelled":   crew(on, loneCancelled, postAndGo),
		"lone caller, cancelled, beside a synchronous caller":        crew(on, loneCancelled, syncCaller),
		"lone caller, closing":                                       crewWith(on, closing, loneCaller),
		"lone caller beside a synchronous caller":                    crew(on, loneCaller, syncCaller),
		"lone caller beside a caller that does not wait":             crew(on, loneCaller, postAndGo),
		"lone caller beside a caller that does not wait, one queue":  crewWith(on, oneQueue, loneCaller, postAndGo),
		"lone caller beside a caller that does not wait, slow queue": crewWith(on, slowQueue, loneCaller, postAndGo),
		"lone caller beside an asynchronous caller":                  crew(on, loneCaller, asyncCaller),
		"lone caller beside WithTurn":                                crew(on, loneCaller, controller),
		"lone caller beside a loop task":                             crew(on, loneCaller, commander),
		"lone caller beside a loop task that it waits for":           crewWith(on, busy, loneCaller, commander),
		"lone caller beside a timer":                                 crew(on, loneCaller, timed),
		"lone caller beside WithTurn and a loop task":                crew(on, loneCaller, controller, commander),
		"two lone callers":                                           crew(on, loneCaller, loneCaller),

		"SpinTimed: lone caller":                                    crew(watch, loneCaller),
		"SpinTimed: lone caller, closing":                           crewWith(watch, closing, loneCaller),
		"SpinTimed: lone caller beside a caller that does not wait": crew(watch, loneCaller, postAndGo),
		"SpinTimed: lone caller beside WithTurn":                    crew(watch, loneCaller, controller),
		"SpinTimed: lone caller beside a loop task":                 crew(watch, loneCaller, commander),

		"SpinAlways: lone caller":                                    crew(always, loneCaller),
		"SpinAlways: lone caller beside a synchronous caller":        crew(always, loneCaller, syncCaller),
		"SpinAlways: lone caller beside a caller that does not wait": crew(always, loneCaller, postAndGo),
		"SpinAlways: lone caller beside WithTurn":                    crew(always, loneCaller, controller),
	}
}

// loneLarge returns more scenarios with lone callers. They are searched only if VERBENA_MODEL=all.
func loneLarge() map[string]scenario {
	on, watch := Config{CallerDriving: true}, Config{CallerDriving: true, SpinMode: SpinTimed}
	return map[string]scenario{
		"lone caller beside a synchronous caller and a caller that does not wait": crew(on, loneCaller, syncCaller, postAndGo),
		"lone caller beside a synchronous caller and WithTurn":                    crew(on, loneCaller, syncCaller, controller),
		"two lone callers and a caller that does not wait, one queue":             crewWith(on, oneQueue, loneCaller, loneCaller, postAndGo),
		"lone caller beside a synchronous caller, slow queue":                     crewWith(on, slowQueue, loneCaller, syncCaller),
		"SpinTimed: lone caller beside a synchronous caller":                      crew(watch, loneCaller, syncCaller),
		"SpinTimed: lone caller beside WithTurn, Spin 1":                          crew(Config{CallerDriving: true, SpinMode: SpinTimed, Spin: 1}, loneCaller, controller),
	}
}
