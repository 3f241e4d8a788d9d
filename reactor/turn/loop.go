package turn

import (
	"runtime"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Loop is the reactor's own goroutine: it runs turns and errands, and sleeps
// when there are none. It returns when the sleeper is closed; what is pending
// then stays so, so close it last. Call it once.
func (t *Token) Loop() {
	wake := WakeEvent // look once before the first sleep
	for wake&WakeClosed == 0 {
		if !t.take() && !t.waitForDriver(wake) {
			// A driver holds, and sees to what the bell was rung for.
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

// waitForDriver waits for the turn while a driver holds it. It returns false, without
// the turn, when the driver can do all that the loop was woken for.
func (t *Token) waitForDriver(wake WakeReason) bool {
	if wake == 0 {
		return false
	}
	t.waitFor(loopWants, t.loopHandoff)
	return true
}

// loopPasses runs turns until nothing is left to do, and releases; or returns
// user code to run first, with the turn given up as if the bell had been rung:
// the loop will be back. Spinning, it may have lost the turn to a driver, who does
// the same then, or hear that the sleeper was closed.
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
			t.waitFor(loopWants, t.loopHandoff) // after the one that knocked
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

// Step runs one turn if nobody holds it; for stepped reactors, which have no
// loop. It reports whether anything was done, and runs the user code that Run
// gives, without the turn. It does not wait for the turn.
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
	t.giveUp(asleep) // no loop: the next Step looks again
	if after != nil {
		after()
	}
	return did
}
