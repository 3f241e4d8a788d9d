package turn

import "github.com/verbena-rdma/verbena/internal/model"

// SpinMode selects how long the loop and drivers poll for work before they sleep or park.
type SpinMode uint8

const (
	// SpinPasses spins for Config.Spin empty passes and then arms; the loop spins only while work
	// is outstanding. An idle reactor uses no processor.
	SpinPasses SpinMode = iota
	// SpinTimed spins for the time of Config.Budget.
	SpinTimed
	// SpinAlways spins forever: the loop never sleeps, and a driver does not leave for lack of
	// completions.
	SpinAlways
)

// With SpinTimed or SpinAlways the loop does not keep the turn while it spins:
//
//	           found work, or has loop tasks    budget over
//	passes <────────────────────────────── spinning ──────> armed, asleep
//	   │  ^                                  ^   │
//	   │  └───────── takes the turn ─────────┘   │budget over while a
//	   └────────── an empty pass ────────────>   v driver holds: the driver arms
//
// A look is one pass of the spinning loop. Between two looks the word is in the state spinning.
// Then the turn has no holder, and no queue need be armed. Submitters do not wake the loop, because
// it looks by itself. A caller that takes the turn in this state sets the bit loopSpins. When it
// leaves it sets the word back to spinning (returnToSpinner), without arming, offering or waking.
// When the loop stops spinning it clears loopSpins by CAS, so a driver never returns the turn to a
// loop that no longer spins.
//
// During a look the loop holds the turn with the bit briefHold. A caller that finds this bit waits
// for the pass to end instead of parking.
type spinEnd uint8

const (
	spinFound   spinEnd = iota // the loop holds the turn, and there is work
	spinExpired                // the loop holds the turn: the budget is over
	spinLost                   // a driver holds the turn, and arms when it leaves
	spinClosed                 // the sleeper was closed; the turn was given up
)

// spinWait gives up the turn and looks for work again and again until spinning ends. Only the loop
// calls it, holding the turn, after a pass that found nothing.
func (t *Token) spinWait() spinEnd {
	t.stats.Spins.Add(1)
	t.setBrief(briefHold)
	spared := t.savedEvents()
	var sp spinRun
	for mine := true; ; {
		if mine {
			t.giveUp(spinning) // a goroutine in WithTurn that wants the turn gets it
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
			if !found && !over {
				mine = true
				continue
			}
			t.setBrief(0)
			if found {
				t.noteFound()
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

// savedEvents returns Config.SavedEvents(), or 0 without it.
func (t *Token) savedEvents() uint64 {
	if t.cfg.SavedEvents == nil {
		return 0
	}
	return t.cfg.SavedEvents()
}

// setBrief(briefHold) sets the bit briefHold in the word; setBrief(0) clears it. Only the loop
// calls it, holding the turn.
func (t *Token) setBrief(how uint32) {
	for {
		s := t.word.Load()
		if t.word.CompareAndSwap(s, s&^briefHold|how) {
			return
		}
	}
}

// returnToSpinner returns the turn to the spinning loop. No queue need be armed, because the loop
// looks again soon. It returns false if the loop no longer spins or the turn is wanted.
func (t *Token) returnToSpinner() bool {
	model.Yield("lend")
	if !t.word.CompareAndSwap(held|loopSpins, spinning) {
		return false
	}
	t.stats.Returned.Add(1)
	return true
}
