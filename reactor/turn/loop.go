package turn

import (
	"github.com/verbena-rdma/verbena/internal/model"
)

// Loop runs passes and loop tasks on the reactor's own goroutine, and sleeps while there is no
// work. Loop returns when the sleeper is closed, even if work is pending. So close the sleeper
// last. Call Loop one time. Call it again only if user code has ended the goroutine of Loop by
// runtime.Goexit.
func (t *Token) Loop() {
	wake := WakeEvent // as if an event had come, so that the loop looks for work before its first sleep
	for wake&WakeClosed == 0 {
		if !t.take() && !t.waitForHolder(wake) {
			// A caller holds the turn, and does the work for which the loop was woken.
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

// waitForHolder waits until the holder gives the turn to the loop, and returns true. If only a call
// of Wake, or an event that any pass handles, has woken the loop (wake is 0), waitForHolder returns false at
// once, because the holder does the work. (Otherwise a driver would park for each such event: in alternating runs,
// a message one way on the null device then took 415 ns of processor time, and takes 390.)
func (t *Token) waitForHolder(wake WakeReason) bool {
	if wake == 0 {
		return false
	}
	t.waitFor(loopWants, t.loopHandoff)
	return true
}

// loopPasses runs passes until no work is left, and returns without the turn. It returns earlier in
// three cases:
//
//   - The loop must run user code, which is the result after. loopPasses has then set the word to
//     woken, because the loop will take the turn again.
//   - Spinning has ended while a driver holds the turn. The driver arms when it leaves.
//   - The sleeper is closed. The result closed is true.
func (t *Token) loopPasses() (after func(), closed bool) {
	for {
		model.Mark("loop", 0)
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
			t.waitFor(loopWants, t.loopHandoff) // wait until the goroutine in WithTurn hands the turn back
			did = true
		}
		if did {
			continue
		}
		if t.cfg.SpinMode != SpinPasses || t.cfg.Spin > 0 && t.work.Outstanding() {
			switch t.spinWait() {
			case spinFound:
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
// there was anything to do. If the turn has a holder, Step returns false at once. User code that
// RunLoopTasks returns is called when Step has given up the turn.
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
