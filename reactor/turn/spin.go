package turn

import "github.com/verbena-rdma/verbena/internal/model"

// SpinMode is how the loop and drivers look for what does not come at once.
type SpinMode uint8

const (
	// SpinPasses is for Config.Spin empty turns, the loop while work is outstanding;
	// then all is armed. An idle reactor uses no processor.
	SpinPasses SpinMode = iota
	// SpinTimed is for the time that Config.Budget gives, which is measured.
	SpinTimed
	// SpinAlways is for ever: the loop never sleeps, and a driver stays until its result is
	// there or the turn is wanted.
	SpinAlways
)

// A loop that spins by SpinTimed or SpinAlways does not keep the turn meanwhile:
//
//	          found something, or is called     over
//	turning <──────────────────────────── watching ───> armed, asleep
//	   │  ^                                 ^   │
//	   │  └──────── takes the turn ─────────┘   │over, while a driver holds:
//	   └───────── an empty turn ────────────>   v the driver arms
//
// Between two looks the word is watched: nobody holds, nothing need be armed, and no
// bell rings, because the loop comes by itself. So whoever wants to drive can take
// the turn, and the word remembers that the loop spins (spun); he leaves it as he
// found it (lend), without arming, offering or ringing. Only the loop clears spun,
// by CAS, so that a driver leaves a turn to the loop only if that is still there.
//
// While the loop looks it holds (brief). A caller that finds it so waits for
// that turn instead of parking.
type spinEnd uint8

const (
	spinFound   spinEnd = iota // the loop holds: there is something
	spinExpired                // the loop holds: there was nothing
	spinLost                   // a driver holds, who arms when it leaves
	spinClosed                 // the sleeper was closed; the turn was given up
)

// spinWait lets the turn go and looks again and again whether there is something to do.
// The caller is the loop, holds, and found nothing.
func (t *Token) spinWait() spinEnd {
	t.stats.Spins.Add(1)
	t.setBrief(briefHold)
	spared := t.savedEvents()
	var sp spinRun
	for mine := true; ; {
		if mine {
			t.giveUp(spinning) // or it is given to who knocks
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

// savedEvents asks what the spinning was good for.
func (t *Token) savedEvents() uint64 {
	if t.cfg.SavedEvents == nil {
		return 0
	}
	return t.cfg.SavedEvents()
}

// setBrief says in the word whether the loop, which holds, does so for one turn only.
func (t *Token) setBrief(how uint32) {
	for {
		s := t.word.Load()
		if t.word.CompareAndSwap(s, s&^briefHold|how) {
			return
		}
	}
}

// returnToSpinner leaves the turn to the loop that spins: it looks at once, so that nothing
// need be armed for it. False: it spins no more, or somebody wants the turn.
func (t *Token) returnToSpinner() bool {
	model.Yield("lend")
	if !t.word.CompareAndSwap(held|loopSpins, spinning) {
		return false
	}
	t.stats.Returned.Add(1)
	return true
}
