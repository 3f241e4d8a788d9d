//go:build verbena_model

package turn

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/model/mutate"
)

// Rule: each line that a mutant changes is needed. A mutant is the code with a change of one or two
// lines; its name says what the change does. In some interleaving of its scenario the mutant breaks a
// rule, with a message that matches the mutant's pattern.
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
		mutate.New("an event that no waiter handles does not wake the loop", lost+"|stuck|"+two, crewWith(on, arrives, postAndGo)).
			In("token.go", "if !t.offer() {", "if !t.offer() && !MUTANT {"),
		mutate.New("Arrived takes the turn without a CAS", two, crewWith(on, arrives, syncCaller, postAndGo)).
			In("token.go", "if t.word.Load() != asleep || !t.word.CompareAndSwap(asleep, held) {",
				"if t.word.Load() != asleep {\nreturn\n}\nif MUTANT {\nmodel.Yield(\"\")\nt.word.Store(held)\n} else if swapped := t.word.CompareAndSwap(asleep, held); !swapped {"),
		mutate.New("Arrived wakes the loop, and keeps the turn", two+"|stuck|"+lost, crewWith(on, arrives, postAndGo)).
			In("token.go", "\t\tt.releaseToLoop()\n\t}\n}\n\n// wakeLoop", "if MUTANT {\nt.wakeLoop()\n} else {\nt.releaseToLoop()\n}\n\t}\n}\n\n// wakeLoop"),
		mutate.New("release does not look for submissions", lost, crew(on, postAndGo)).
			In("token.go", "!t.work.Pending()", "(MUTANT || !t.work.Pending())"),
		mutate.New("release takes the turn back without a CAS", two, crew(on, syncCaller, postAndGo)).
			In("token.go", "if !t.word.CompareAndSwap(asleep, held)", "if MUTANT {\nt.word.Store(held)\n} else if !t.word.CompareAndSwap(asleep, held)"),
		mutate.New("the loop does not arm before it sleeps", lost, crew(on, postAndGo)).
			In("loop.go", "t.work.Pass(true)", "!MUTANT && t.work.Pass(true)"),
		mutate.New("a driver does not arm before it leaves", lost, crew(on, syncCaller, postAndGo)).
			In("drive.go", "t.work.Pass(true)", "!MUTANT && t.work.Pass(true)"),
		mutate.New("wakeLoop does not call Wake", lost, crew(on, postAndGo)).
			In("token.go", "t.sleep.Wake()", "if !MUTANT {\nt.sleep.Wake()\n}"),
		mutate.New("releaseToLoop does not wake the loop", lost, crew(on, syncCaller, commander)).
			In("token.go", "t.giveUp(woken)", "t.giveUp(woken) && !MUTANT"),
		dropWanted("giveUp ignores the bits loopWants and callerWants", crew(on, syncCaller, controller)),
		dropWanted("giveUp ignores the bits loopWants and callerWants (lone caller)", crew(on, loneCaller, controller)),
		driveOn("a driver does not leave for a timer", crewWith(on, busy, syncCaller, timed)),
		driveOn("a driver does not leave for a submitted function", crewWith(on, busy, syncCaller, commander)),
		mutate.New("a loop that was woken by an event does not ask for the turn", "livelock", crew(on, syncCaller, syncCaller)).
			In("loop.go", "wake == 0", "MUTANT && wake&WakeEvent != 0 || wake == 0"),
		mutate.New("a loop that was woken by a timer does not ask for the turn", "livelock", crew(on, syncCaller, timed)).
			In("loop.go", "wake == 0", "MUTANT && wake&WakeTimer != 0 || wake == 0"),
		mutate.New("a leaving driver does not look for loop tasks", lost, crew(on, syncCaller, timed)).
			In("drive.go", "if t.work.NeedsLoop() {\n\t\t\tbreak\n\t\t}\n\t\tif mayOffer", "if !MUTANT && t.work.NeedsLoop() {\nbreak\n}\nif mayOffer").
			In("drive.go", "if t.work.NeedsLoop() {\n\t\t\tbreak\n\t\t}\n\t\tif t.rel", "if !MUTANT && t.work.NeedsLoop() {\nbreak\n}\nif t.rel"),
		mutate.New("a driver that found nothing offers the turn", "livelock", crew(on, syncCaller, syncCaller)).
			In("drive.go", "t.leave(!tired,", "t.leave(!tired || MUTANT,"),
		mutate.New("a driver leaves unarmed", lost, crew(on, syncCaller, postAndGo)).
			In("drive.go", ", t.work.Armed())\n}", ", MUTANT || t.work.Armed())\n}"),
		mutate.New("a driver keeps the turn after a waiter accepted its offer", two, crew(on, syncCaller, syncCaller)).
			In("drive.go", "&& t.offer()", "&& t.offer() && !MUTANT"),
		mutate.New("delist does not wait for the leaver that uses the waiter", "Drive had returned", crew(on, syncCaller, cancelled)).
			In("waiter_slot.go", "v != sitting+slotTaken", "MUTANT || v != sitting+slotTaken"),
		mutate.New("the loop stops spinning without clearing loopSpins", lost, crew(watch, syncCaller, postAndGo)).
			In("spin.go", "case over:", "case over && MUTANT:\nreturn spinLost\ncase over:"),
		mutate.New("the loop clears loopSpins without a CAS, which clears other bits, too", "stuck|"+two, crew(watch, syncCaller, controller)).
			In("spin.go", "case over:", "case over && MUTANT:\nt.word.Store(held)\nreturn spinLost\ncase over:"),
		mutate.New("the spinning loop does not call Poll", "stuck|livelock", crewWith(always, closing, syncCaller)).
			In("spin.go", "wake := t.pollChannels(&sp)", "wake := WakeReason(0)\nif !MUTANT {\nwake = t.pollChannels(&sp)\n}"),
		mutate.New("the spinning loop does not ask for the turn when there are loop tasks", "livelock|stuck|"+lost, crewWith(always, busy, syncCaller, commander)).
			In("spin.go", "case t.work.NeedsLoop():", "case !MUTANT && t.work.NeedsLoop():"),
		mutate.New("the loop gives the turn up unarmed and does not spin", lost, crew(watch, postAndGo)).
			In("spin.go", "t.giveUp(spinning)", "if MUTANT {\nt.giveUp(asleep)\nreturn spinLost\n}\nt.giveUp(spinning)"),
		mutate.New("Begin returns true although the turn has a holder", "2 hold the turn", crew(on, loneCaller, syncCaller)).
			In("drive.go", "&& t.takeAfterBriefHold()\n}", "&& (t.takeAfterBriefHold() || MUTANT)\n}"),
		mutate.New("Leave neither arms nor looks for submissions", lost, crew(on, loneCaller, postAndGo)).
			In("drive.go", "t.leave(true, false)", "if MUTANT {\nt.giveUp(asleep)\nreturn\n}\nt.leave(true, false)"),
		mutate.New("TryPass keeps the turn", two+"|stuck|"+lost, crew(on, poller)).
			In("drive.go", "did := t.work.Pass(arm)\n", "did := t.work.Pass(arm)\nif MUTANT {\nreturn true\n}\n"),
		mutate.New("TryPass leaves unarmed although the loop has stopped spinning meanwhile", lost, crew(watch, poller, postAndGo)).
			In("drive.go", "arm && (!did", "(arm || MUTANT) && (!did"),
		mutate.New("Resume parks without driving", "0 hold the turn", crew(on, loneCaller)).
			In("drive.go", "t.drive(done, w)\n\tt.driveOrPark", "if !MUTANT {\nt.drive(done, w)\n}\nt.driveOrPark"),
	)
}

// Rule: the model finds every listed mistake of a reactor or a lone caller in its use of the token.
func TestModelFindsWrongWays(t *testing.T) {
	model.Breaks(t, "an earlier deadline does not become a loop task", "lost wake-up", crewWith(Config{CallerDriving: true}, deafTimer, syncCaller, timed))
	for _, w := range loneWrong() {
		model.Breaks(t, w.name, w.want, w.sc)
	}
}
