//go:build verbena_model

package turn

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/model/mutate"
)

// Rule: each line that a mutant changes is needed. A mutant is the code with a change of one or two
// lines. In some interleaving of its scenario the mutant breaks a rule, with a message that matches
// the mutant's pattern.
func TestModelMutants(t *testing.T) {
	on, watch := Config{CallerDriving: true}, Config{CallerDriving: true, SpinMode: SpinTimed}
	always := Config{CallerDriving: true, SpinMode: SpinAlways}
	const lost, two = "lost wake-up", "hold the turn|does not hold"
	driveOn := func(name string, sc scenario) *mutate.Mutant {
		return mutate.New(name, "livelock", sc).In("drive.go", "t.wanted()", "!MUTANT && t.wanted()").
			In("drive.go", "(isDone(done) || t.work.NeedsLoop())", "(isDone(done) || t.work.NeedsLoop()) && !MUTANT")
	}
	dropWanted := func(name string, sc scenario) *mutate.Mutant {
		return mutate.New(name, "stuck|"+two, sc).
			In("token.go", "t.word.CompareAndSwap(held, to)", "(t.word.CompareAndSwap(held, to) || MUTANT && t.word.Swap(to) > 0)")
	}
	mutate.Test(t,
		mutate.New("look for submissions after release", lost, crew(on, postAndGo)).
			In("token.go", "!t.work.Pending()", "(MUTANT || !t.work.Pending())"),
		mutate.New("retake by CAS", two, crew(on, syncCaller, postAndGo)).
			In("token.go", "if !t.word.CompareAndSwap(asleep, held)", "if MUTANT {\nt.word.Store(held)\n} else if !t.word.CompareAndSwap(asleep, held)"),
		mutate.New("arm before leaving: the loop", lost, crew(on, postAndGo)).
			In("loop.go", "t.work.Pass(true)", "!MUTANT && t.work.Pass(true)"),
		mutate.New("arm before leaving: a driver", lost, crew(on, syncCaller, postAndGo)).
			In("drive.go", "t.work.Pass(true)", "!MUTANT && t.work.Pass(true)"),
		mutate.New("write the bell", lost, crew(on, postAndGo)).
			In("token.go", "t.sleep.Wake()", "if !MUTANT {\nt.sleep.Wake()\n}"),
		mutate.New("pass with the bell", lost, crew(on, syncCaller, commander)).
			In("token.go", "t.giveUp(woken)", "t.giveUp(woken) && !MUTANT"),
		dropWanted("see on leaving who wants the turn", crew(on, syncCaller, controller)),
		dropWanted("lone: see who knocks", crew(on, loneCaller, controller)),
		driveOn("let the loop in for a timer", crewWith(on, busy, syncCaller, timed)),
		driveOn("let the loop in for an errand", crewWith(on, busy, syncCaller, commander)),
		mutate.New("want the turn for an event", "livelock", crew(on, syncCaller, syncCaller)).
			In("loop.go", "wake == 0", "MUTANT && wake&WakeEvent != 0 || wake == 0"),
		mutate.New("want the turn for a timer", "livelock", crew(on, syncCaller, timed)).
			In("loop.go", "wake == 0", "MUTANT && wake&WakeTimer != 0 || wake == 0"),
		mutate.New("look for errands on leaving", lost, crew(on, syncCaller, timed)).
			In("drive.go", "if t.work.NeedsLoop() {\n\t\t\tbreak\n\t\t}\n\t\tif mayOffer", "if !MUTANT && t.work.NeedsLoop() {\nbreak\n}\nif mayOffer").
			In("drive.go", "if t.work.NeedsLoop() {\n\t\t\tbreak\n\t\t}\n\t\tif t.rel", "if !MUTANT && t.work.NeedsLoop() {\nbreak\n}\nif t.rel"),
		mutate.New("no offer without hope", "livelock", crew(on, syncCaller, syncCaller)).
			In("drive.go", "t.leave(!tired)", "t.leave(!tired || MUTANT)"),
		mutate.New("leave once an offer is accepted", two, crew(on, syncCaller, syncCaller)).
			In("drive.go", "&& t.offer()", "&& t.offer() && !MUTANT"),
		mutate.New("wait for the leaver at the seat", "Drive had returned", crew(on, syncCaller, cancelled)).
			In("waiter_slot.go", "v != sitting+slotTaken", "MUTANT || v != sitting+slotTaken"),
		mutate.New("say that nobody spins any more", lost, crew(watch, syncCaller, postAndGo)).
			In("spin.go", "case over:", "case over && MUTANT:\nreturn spinLost\ncase over:"),
		mutate.New("and keep what else the word says", "stuck|"+two, crew(watch, syncCaller, controller)).
			In("spin.go", "case over:", "case over && MUTANT:\nt.word.Store(held)\nreturn spinLost\ncase over:"),
		mutate.New("look at the channels while spinning", "stuck|livelock", crewWith(always, closing, syncCaller)).
			In("spin.go", "wake := t.pollChannels(&sp)", "wake := WakeReason(0)\nif !MUTANT {\nwake = t.pollChannels(&sp)\n}"),
		mutate.New("want the turn for an errand while spinning", "livelock|stuck|"+lost, crewWith(always, busy, syncCaller, commander)).
			In("spin.go", "case t.work.NeedsLoop():", "case !MUTANT && t.work.NeedsLoop():"),
		mutate.New("come back while spinning", lost, crew(watch, postAndGo)).
			In("spin.go", "t.giveUp(spinning)", "if MUTANT {\nt.giveUp(asleep)\nreturn spinLost\n}\nt.giveUp(spinning)"),
		mutate.New("begin when nobody holds", "2 hold the turn", crew(on, loneCaller, syncCaller)).
			In("drive.go", "&& t.takeAfterBriefHold()\n}", "&& (t.takeAfterBriefHold() || MUTANT)\n}"),
		mutate.New("lone: leave armed and looking again", lost, crew(on, loneCaller, postAndGo)).
			In("drive.go", "t.leave(true)", "if MUTANT {\nt.giveUp(asleep)\nreturn\n}\nt.leave(true)"),
		mutate.New("lone: drive before parking", "0 hold the turn", crew(on, loneCaller)).
			In("drive.go", "t.drive(done, w)\n\tt.driveOrPark", "if !MUTANT {\nt.drive(done, w)\n}\nt.driveOrPark"),
	)
}

// Rule: the model finds every listed mistake of a reactor or a lone caller in its use of the token.
func TestModelFindsWrongWays(t *testing.T) {
	model.Breaks(t, "an earlier deadline is an errand", "lost wake-up", crewWith(Config{CallerDriving: true}, deafTimer, syncCaller, timed))
	for _, w := range loneWrong() {
		model.Breaks(t, w.name, w.want, w.sc)
	}
}
