//go:build verbena_model

package turn

// loneDefences: each part of a lone caller's way is needed. Mutants take a part out of the
// token; the other ways are those of a caller that calls the wrong one.
func loneDefences() []defence {
	on, watch := Config{CallerDriving: true}, Config{CallerDriving: true, Spinning: SpinBudget}
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
	return []defence{
		{mutantBeginHeld, "begin when nobody holds", crew(on, loneCaller, syncCaller), "2 hold the turn"},
		{mutantLeaveBare, "lone: leave armed and looking again", crew(on, loneCaller, postAndGo), "lost wake-up"},
		{mutantResumeParks, "lone: drive before parking", crew(on, loneCaller), "0 hold the turn"},
		{mutantDropWanted, "lone: see who knocks", crew(on, loneCaller, controller), "hold the turn|stuck|does not hold"},
		{noMutant, "lone: arm before leaving", crew(on, leaves(leaveUnarmed), postAndGo), "lost wake-up"},
		{noMutant, "lone: look for submissions on leaving", crew(on, leaves(leaveBlind), postAndGo), "lost wake-up"},
		{noMutant, "lone: look for errands on leaving", crew(on, leaves(leaveCurt), timed), "lost wake-up"},
		{noMutant, "lone: make a turn before leaving", crew(watch, loneBy(turns)), "is to post in its own turn"},
		{noMutant, "lone: leave what is settled", crew(on, leaves(func(*Token) {})), "0 hold the turn"},
		{noMutant, "lone: lend only to who spins", crew(watch, leaves(lendBlind), postAndGo), "lost wake-up|ended with word"},
		{noMutant, "lone: resume, having begun", crew(on, loneBy(drives)), "0 hold the turn"},
		{noMutant, "lone: resume only having begun", crew(on, loneBy(resumes), syncCaller), "2 hold the turn"},
	}
}

// leaveUnarmed looks again, but completions raise no event.
func leaveUnarmed(t *Token) {
	if !t.release() {
		t.leave(true)
	}
}

// leaveBlind arms, and does not look for what was submitted meanwhile.
func leaveBlind(t *Token) {
	yield("turn.arm")
	if t.work.Turn(true) {
		t.leave(true)
		return
	}
	t.drop(asleep)
}

// leaveCurt arms and looks for submissions, and not for what only the loop may do.
func leaveCurt(t *Token) {
	yield("turn.arm")
	if t.work.Turn(true) || !t.release() {
		t.leave(true)
	}
}

// lendBlind leaves the turn to a loop that may not spin any more.
func lendBlind(t *Token) {
	if t.word.Load()&wants != 0 && t.hand() {
		return
	}
	yield("lend")
	t.word.Store(watched)
}
