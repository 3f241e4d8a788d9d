//go:build verbena_model

package turn

import "github.com/verbena-rdma/verbena/internal/model"

// wrongWay is a scenario with a wrong use of the token.
type wrongWay struct {
	name string
	sc   scenario
	want string // a regular expression for the message of the broken rule
}

// loneWrong returns scenarios with lone callers that call a wrong function.
func loneWrong() []wrongWay {
	on, watch := Config{CallerDriving: true}, Config{CallerDriving: true, SpinMode: SpinTimed}
	leaves := func(how func(*Token)) script {
		w := rightLone
		w.leave = how
		return loneBy(w)
	}
	turns, drives, resumes := rightLone, rightLone, rightLone
	turns.turn = func(f *fakeWorld) { f.tok.Leave() }
	turns.resume = (*Token).Drive
	drives.resume = (*Token).Drive
	resumes.or = (*Token).Resume
	return []wrongWay{
		{"a lone caller leaves without arming", crew(on, leaves(leaveUnarmed), postAndGo), "lost wake-up"},
		{"a lone caller leaves without looking for submissions", crew(on, leaves(leaveBlind), postAndGo), "lost wake-up"},
		{"a lone caller leaves without looking for loop tasks", crew(on, leaves(leaveCurt), timed), "lost wake-up"},
		{"a lone caller leaves without a pass for its request", crew(watch, loneBy(turns)), "which only this caller may post"},
		{"a lone caller whose request is settled keeps the turn", crew(on, leaves(func(*Token) {})), "0 hold the turn"},
		{"a lone caller returns the turn to a loop that no longer spins", crew(watch, leaves(lendBlind), postAndGo), "lost wake-up|ended with word"},
		{"a lone caller that holds the turn calls Drive in place of Resume", crew(on, loneBy(drives)), "0 hold the turn"},
		{"a lone caller that does not hold the turn calls Resume in place of Drive", crew(on, loneBy(resumes), syncCaller), "2 hold the turn"},
	}
}

// leaveUnarmed looks for submissions, but does not arm. So a later completion raises no event.
func leaveUnarmed(t *Token) {
	if !t.release() {
		t.leave(true, false)
	}
}

// leaveBlind arms, but does not look for submissions after the release.
func leaveBlind(t *Token) {
	model.Yield("turn.arm")
	if t.work.Pass(true) {
		t.leave(true, false)
		return
	}
	t.giveUp(asleep)
}

// leaveCurt arms and looks for submissions, but does not look for loop tasks.
func leaveCurt(t *Token) {
	model.Yield("turn.arm")
	if t.work.Pass(true) || !t.release() {
		t.leave(true, false)
	}
}

// lendBlind returns the turn to the loop even if the loop no longer spins.
func lendBlind(t *Token) {
	if t.word.Load()&anyWants != 0 && t.handOver() {
		return
	}
	model.Yield("lend")
	t.word.Store(spinning)
}
