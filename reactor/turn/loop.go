package turn

import (
	"runtime"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Loop runs passes and loop tasks on the reactor's own goroutine, and sleeps when there are none.
// It returns when the sleeper is closed, and leaves pending work undone; so close the sleeper last.
// Call Loop one time. Call it again only if user code ended its goroutine.
func (t *Token) Loop() {
	wake := WakeEvent // look once before the first sleep
	for wake&WakeClosed == 0 {
		if !t.take() && !t.waitForDriver(wake) {
			// A driver holds the turn and handles what the wake-up was for.
			wake = t.sleep.Wait(t.work.Deadline())
			t.noteWakeup(wake)
			continue
		}
		after, closed := t.loopPasses()
		if after != nil {
			after() // user code, without the turn
			wake = WakeEvent
			continue
		}
		if closed {
			return
		}
		t.stats.Sleeps.Add(1)
		wake = t.sleep.Wait(t.work.Deadline())
		t.noteWakeup(wake)
	}
}

// waitForDriver waits for the turn while a driver holds it, and returns true when the loop has it.
// It returns false at once if only a call of Wake woke the loop: then the driver does the work.
func (t *Token) waitForDriver(wake WakeReason) bool {
	if wake == 0 {
		return false
	}
	t.waitFor(loopWants, t.loopHandoff)
	return true
}

// loopPasses runs passes until no work is left, and gives up the turn. It returns early in three
// cases. If user code (after) must run first, the word is woken, and the loop comes back. If a
// driver holds the turn when spinning ends, the driver arms when it leaves. If the sleeper is
// closed, the result closed is true.
func (t *Token) loopPasses() (after func(), closed bool) {
	for idle := 0; ; {
		model.Mark("loop", idle)
		model.Yield("loop")
		if t.work.NeedsLoop() {
			if after := t.work.RunLoopTasks(); after != nil {
				t.giveUp(woken)
				return after, false
			}
		}
		model.Yield("turn")
		did := t.work.Pass(false)
		if t.wanted() && t.handOver() {
			t.waitFor(loopWants, t.loopHandoff) // wait until the goroutine in WithTurn hands it back
			did = true
		}
		if did {
			idle = 0
			continue
		}
		switch t.cfg.SpinMode {
		case SpinPasses:
			if idle < t.cfg.Spin && t.work.Outstanding() {
				idle++
				runtime.Gosched()
				continue
			}
		default:
			switch t.spinWait() {
			case spinFound:
				idle = 0
				continue
			case spinLost:
				return nil, false
			case spinClosed:
				return nil, true
			}
		}
		model.Yield("turn.arm")
		if t.work.Pass(true) {
			continue
		}
		if t.work.NeedsLoop() {
			continue
		}
		if t.release() {
			return nil, false
		}
	}
}

// Step runs one pass and the loop tasks of a stepped reactor, which has no loop. It reports whether
// there was anything to do. If the turn has a holder, Step returns false at once. If RunLoopTasks
// returns user code, Step calls it after giving up the turn.
func (t *Token) Step() bool {
	if !t.take() {
		return false
	}
	did := t.work.Pass(false)
	var after func()
	if t.work.NeedsLoop() {
		did = true
		after = t.work.RunLoopTasks()
	}
	t.giveUp(asleep) // there is no loop to wake: the next Step looks again
	if after != nil {
		after()
	}
	return did
}
