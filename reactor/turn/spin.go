package turn

import "github.com/verbena-rdma/verbena/internal/model"

// SpinMode selects how long the loop and drivers poll for work before they sleep or park.
type SpinMode uint8

const (
	// SpinPasses ends the spinning after Config.Spin empty passes. The loop spins only while work
	// is outstanding, so an idle reactor uses no processor.
	SpinPasses SpinMode = iota
	// SpinTimed ends the spinning after the time of Config.Budget.
	SpinTimed
	// SpinAlways never ends the spinning. The loop does not sleep. A driver goes on spinning, however
	// many of its passes find nothing.
	SpinAlways
)

// The loop does not keep the turn while it spins. So a goroutine that has just got a result, and waits
// for the next result, can drive. If the spinning loop kept the turn with SpinPasses, a round trip
// between two processes (over UDP, on 2 cores) would take 61 µs instead of 19 µs.
//
//	         found work, or has loop tasks      budget over
//	passes <────────────────────────────── spinning ──────> armed, asleep
//	   │  ^                                  ^   │
//	   │  └───────── takes the turn ─────────┘   │budget over while a
//	   └────────── an empty pass ────────────>   v driver holds the turn: the driver arms
//
// A look is one pass of the spinning loop. Between two looks the word is in the state spinning,
// unless a caller holds the turn. In the state spinning, the turn has no holder, the queues need not
// be armed, and submitters do not wake the loop, because the loop looks again soon.
//
// A caller that takes the turn in the state spinning sets the bit loopSpins. When the caller leaves,
// it sets the word back to spinning (returnToSpinner). It arms nothing, offers the turn to no waiter,
// and does not wake the loop. When the loop stops spinning, it clears loopSpins by CAS. So a caller
// never returns the turn to a loop that no longer spins.
//
// During a look the loop holds the turn with the bit briefHold. A goroutine that is about to drive
// and finds this bit does not park, but waits for the end of the pass.

// spinEnd is the reason why spinWait returned.
type spinEnd uint8

const (
	spinFound   spinEnd = iota // the loop holds the turn, and there is work
	spinExpired                // the loop holds the turn, and the budget is over
	spinLost                   // a driver holds the turn, and arms when it leaves
	spinClosed                 // the sleeper was closed; the turn was given up
)

// spinWait gives up the turn, and looks for work again and again until spinning ends. Only the loop
// calls spinWait, while it holds the turn, after a pass that found nothing.
func (t *Token) spinWait() spinEnd {
	t.stats.Spins.Add(1)
	t.setBrief(briefHold)
	spared := t.savedEvents()
	var sp spinRun
	for mine := true; ; {
		if mine {
			t.giveUp(spinning) // or hands the turn to a goroutine in WithTurn that wants it
			mine = false
		}
		model.Mark("watch", sp.local())
		over := t.loopPause(&sp)
		wake := t.pollChannels(&sp)
		if wake&WakeClosed != 0 {
			t.waitFor(loopWants, t.loopHandoff)
			t.giveUp(asleep)
			return spinClosed
		}
		if over && t.savedEvents() != spared {
			spared, over = t.savedEvents(), false
			sp = spinRun{}
		}
		model.Mark("watching", 2*sp.local()+ifTrue(over))
		model.Yield("watch.take")
		s := t.word.Load()
		switch {
		case s == spinning:
			if !t.word.CompareAndSwap(spinning, held|briefHold) {
				continue
			}
			model.Mark("looking", 2*sp.local()+ifTrue(over))
			model.Yield("loop")
			found := t.work.NeedsLoop()
			if !found {
				model.Yield("turn")
				found = t.work.Pass(false)
			}
			if !found && t.cfg.SpinMode == SpinPasses {
				over = over || !t.work.Outstanding()
			}
			if !found && !over {
				mine = true
				continue
			}
			t.setBrief(0)
			if found {
				return spinFound
			}
			t.noteInVain()
			return spinExpired
		case t.work.NeedsLoop():
			t.waitFor(loopWants, t.loopHandoff)
			return spinFound
		case over:
			if t.word.CompareAndSwap(s, s&^loopSpins) {
				t.noteInVain()
				return spinLost
			}
		}
	}
}

// savedEvents returns the result of Config.SavedEvents, or 0 if this function is nil.
func (t *Token) savedEvents() uint64 {
	if t.cfg.SavedEvents == nil {
		return 0
	}
	return t.cfg.SavedEvents()
}

// setBrief(briefHold) sets the bit briefHold in the word; setBrief(0) clears it. Only the loop
// calls setBrief, while it holds the turn.
func (t *Token) setBrief(how uint32) {
	for {
		s := t.word.Load()
		if t.word.CompareAndSwap(s, s&^briefHold|how) {
			return
		}
	}
}

// returnToSpinner returns the turn to the spinning loop. No queue need be armed, because the loop
// looks again soon. If the loop no longer spins, or if another goroutine wants the turn, the caller
// keeps the turn, and returnToSpinner returns false.
func (t *Token) returnToSpinner() bool {
	model.Yield("lend")
	if !t.word.CompareAndSwap(held|loopSpins, spinning) {
		return false
	}
	t.stats.Returned.Add(1)
	return true
}
