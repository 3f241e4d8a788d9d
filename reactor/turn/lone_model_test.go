//go:build verbena_model

package turn

import "github.com/verbena-rdma/verbena/internal/model"

// A lone caller takes the turn before it submits. It posts its request itself, in a pass of its
// own, and waits while holding the turn (reactor.Queue.TransferWait):
//
//	            Begin                own pass
//	submitting ──────> holding ────────────────┬─ settled ──────> Leave
//	     │                                     └─ not yet ──────> Resume
//	     └─ another holds ──> submit, then Drive
//
// loneWays has the functions that a lone caller calls at these steps. lone_wrong_model_test.go uses
// wrong functions in their place.
type loneWays struct {
	begin  func(*Token) bool
	turn   func(*fakeWorld)
	leave  func(*Token)
	resume func(*Token, <-chan struct{}, Parker)
	// Called if another goroutine holds the turn: waits for the result.
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
	// like loneCaller, but its context may end at any moment
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

// postLone posts the request of the lone caller that holds the turn. If the argument queued is set,
// this pass has also taken submitted requests. Before postLone returns, the actor (a goroutine of
// the model) yields. So the device may complete the request before the pass polls.
func (f *fakeWorld) postLone(queued bool) {
	o := f.lone
	f.lone = nil
	if a := model.CurrentActor(); a.Owner != o.caller {
		model.Failf("%s posts what lone caller %d is to post in its own turn", a.Name, o.caller)
	}
	switch {
	case queued && f.oneQueue: // a pass posts only one list to a queue, so this request waits for the next pass
		f.inbox = append(f.inbox, o)
		f.tok.SubmittedBeforeDrive()
	case f.oneQueue || f.slowQueue:
		f.posted = append(f.posted, o)
	default: // this request completes first, so others are still outstanding when the lone caller calls Leave
		f.posted = append([]*op{o}, f.posted...)
	}
	model.Yield("lone.poll")
}

func oneQueue(f *fakeWorld)  { f.oneQueue = true }
func slowQueue(f *fakeWorld) { f.slowQueue = true }

// loneScenarios returns scenarios with lone callers. Every test run searches them.
func loneScenarios() map[string]scenario {
	on, off := Config{CallerDriving: true}, Config{}
	spin := Config{CallerDriving: true, Spin: 1}
	watch := Config{CallerDriving: true, SpinMode: SpinTimed}
	always := Config{CallerDriving: true, SpinMode: SpinAlways}
	return map[string]scenario{
		"lone":                                    crew(on, loneCaller),
		"lone, spinning":                          crew(spin, loneCaller),
		"lone, driving off":                       crew(off, loneCaller, postAndGo),
		"lone, cancelled":                         crew(on, loneCancelled, postAndGo),
		"lone, cancelled, beside a driver":        crew(on, loneCancelled, syncCaller),
		"lone, closing":                           crewWith(on, closing, loneCaller),
		"lone beside a driver":                    crew(on, loneCaller, syncCaller),
		"lone beside one that rings":              crew(on, loneCaller, postAndGo),
		"lone beside one that rings, one queue":   crewWith(on, oneQueue, loneCaller, postAndGo),
		"lone beside one that rings, slow queue":  crewWith(on, slowQueue, loneCaller, postAndGo),
		"lone beside one that rings and waits":    crew(on, loneCaller, asyncCaller),
		"lone beside control":                     crew(on, loneCaller, controller),
		"lone beside an errand":                   crew(on, loneCaller, commander),
		"lone beside an errand that it waits for": crewWith(on, busy, loneCaller, commander),
		"lone beside a timer":                     crew(on, loneCaller, timed),
		"lone beside control and an errand":       crew(on, loneCaller, controller, commander),
		"two lone":                                crew(on, loneCaller, loneCaller),

		"watched: lone":                       crew(watch, loneCaller),
		"watched: lone, closing":              crewWith(watch, closing, loneCaller),
		"watched: lone beside one that rings": crew(watch, loneCaller, postAndGo),
		"watched: lone beside control":        crew(watch, loneCaller, controller),
		"watched: lone beside an errand":      crew(watch, loneCaller, commander),

		"always: lone":                       crew(always, loneCaller),
		"always: lone beside a driver":       crew(always, loneCaller, syncCaller),
		"always: lone beside one that rings": crew(always, loneCaller, postAndGo),
		"always: lone beside control":        crew(always, loneCaller, controller),
	}
}

// loneLarge returns more scenarios with lone callers. They are searched only if VERBENA_MODEL=all.
func loneLarge() map[string]scenario {
	on, watch := Config{CallerDriving: true}, Config{CallerDriving: true, SpinMode: SpinTimed}
	return map[string]scenario{
		"lone beside a driver and one that rings":  crew(on, loneCaller, syncCaller, postAndGo),
		"lone beside a driver and control":         crew(on, loneCaller, syncCaller, controller),
		"two lone and one that rings, one queue":   crewWith(on, oneQueue, loneCaller, loneCaller, postAndGo),
		"lone beside a driver, slow queue":         crewWith(on, slowQueue, loneCaller, syncCaller),
		"watched: lone beside a driver":            crew(watch, loneCaller, syncCaller),
		"watched: lone beside control, two rounds": crew(Config{CallerDriving: true, SpinMode: SpinTimed, Spin: 1}, loneCaller, controller),
	}
}
