package turn

import "github.com/verbena-rdma/verbena/internal/model"

// SpinMode is how long the loop and drivers poll for work before they sleep or park.
type SpinMode uint8

const (
	// SpinPasses spins for Config.Spin empty passes; the loop does so only while work is
	// outstanding. Then all queues are armed. An idle reactor uses no processor.
	SpinPasses SpinMode = iota
	// SpinTimed spins for the time that Config.Budget gives.
	SpinTimed
	// SpinAlways spins forever: the loop never sleeps, and a driver stays until its result is there
	// or the turn is wanted.
	SpinAlways
)

// With SpinTimed or SpinAlways the loop does not keep the turn while it spins:
//
//	           found something, or is needed      over
//	passes <────────────────────────────── spinning ───> armed, asleep
//	   │  ^                                  ^   │
//	   │  └───────── takes the turn ─────────┘   │over, while a driver holds:
//	   └────────── an empty pass ────────────>   v the driver arms
//
// Between two looks the word is spinning: the turn has no holder, no queue need be armed, and
// submitters do not wake the loop, because it looks by itself. A caller can take the turn then, and
// loopSpins remembers in the word that the loop spins. The caller returns the word to spinning
// (returnToSpinner), without arming, offering or waking. Only the loop clears loopSpins, by CAS, so
// that a driver never leaves the turn to a loop that stopped spinning.
//
// While the loop looks it holds the turn with briefHold. A caller that finds that bit waits for the
// pass to end instead of parking.
type spinEnd uint8

const (
	spinFound   spinEnd = iota // the loop holds: there is something to do
	spinExpired                // the loop holds: the budget is over
	spinLost                   // a driver holds, and arms when it leaves
	spinClosed                 // the sleeper was closed; the turn was given up
)

// spinWait gives up the turn and looks for work again and again until spinning ends. The caller is
// the loop, holds the turn, and found nothing.
func (t *Token) spinWait() spinEnd {
	t.stats.Spins.Add(1)
	t.setBrief(briefHold)
	spared := t.savedEvents()
	var sp spinRun
	for mine := true; ; {
		if mine {
			t.giveUp(spinning) // or hands it to a goroutine in WithTurn
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

// savedEvents returns the count of events that spinning saved.
func (t *Token) savedEvents() uint64 {
	if t.cfg.SavedEvents == nil {
		return 0
	}
	return t.cfg.SavedEvents()
}

// setBrief sets briefHold in the word (how is briefHold) or clears it (0). Only the loop calls it,
// holding the turn.
func (t *Token) setBrief(how uint32) {
	for {
		s := t.word.Load()
		if t.word.CompareAndSwap(s, s&^briefHold|how) {
			return
		}
	}
}

// returnToSpinner returns the turn to the spinning loop, which looks at once, so that no queue need
// be armed. It returns false if the loop spins no more or the turn is wanted.
func (t *Token) returnToSpinner() bool {
	model.Yield("lend")
	if !t.word.CompareAndSwap(held|loopSpins, spinning) {
		return false
	}
	t.stats.Returned.Add(1)
	return true
}
