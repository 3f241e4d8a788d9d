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
		if !t.take() && !t.want(wake) {
			// A driver holds, and sees to what the bell was rung for.
			wake = t.sleep.Wait(t.work.Deadline())
			t.awoke(wake)
			continue
		}
		after, closed := t.loopTurns()
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
		t.awoke(wake)
	}
}

// want waits for the turn while a driver holds it. It returns false, without
// the turn, when the driver can do all that the loop was woken for.
func (t *Token) want(wake Wake) bool {
	if wake == 0 {
		return false
	}
	t.wait(wantLoop, t.baton)
	return true
}

// loopTurns runs turns until nothing is left to do, and releases; or returns
// user code to run first, with the turn given up as if the bell had been rung:
// the loop will be back. Spinning, it may have lost the turn to a driver, who does
// the same then, or hear that the sleeper was closed.
func (t *Token) loopTurns() (after func(), closed bool) {
	for idle := 0; ; {
		model.Mark("loop", idle)
		model.Yield("loop")
		if t.work.Errands() {
			if after := t.work.Run(); after != nil {
				t.drop(rung)
				return after, false
			}
		}
		model.Yield("turn")
		did := t.work.Turn(false)
		if t.wanted() && t.hand() {
			t.wait(wantLoop, t.baton) // after the one that knocked
			did = true
		}
		if did {
			idle = 0
			continue
		}
		switch t.cfg.Spinning {
		case SpinTurns:
			if idle < t.cfg.Spin && t.work.Outstanding() {
				idle++
				runtime.Gosched()
				continue
			}
		default:
			switch t.watch() {
			case watchFound:
				idle = 0
				continue
			case watchLost:
				return nil, false
			case watchClosed:
				return nil, true
			}
		}
		model.Yield("turn.arm")
		if t.work.Turn(true) {
			continue
		}
		if t.work.Errands() {
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
	did := t.work.Turn(false)
	var after func()
	if t.work.Errands() {
		did = true
		after = t.work.Run()
	}
	t.drop(asleep) // no loop: the next Step looks again
	if after != nil {
		after()
	}
	return did
}
