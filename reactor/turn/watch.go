package turn

import "github.com/verbena-rdma/verbena/internal/model"

// Spinning is how the loop and drivers look for what does not come at once.
type Spinning uint8

const (
	// SpinTurns is for Config.Spin empty turns, the loop while work is outstanding;
	// then all is armed. An idle reactor uses no processor.
	SpinTurns Spinning = iota
	// SpinBudget is for the time that Config.Pace gives, which is measured.
	SpinBudget
	// SpinAlways is for ever: the loop never sleeps, and a driver stays until its result is
	// there or the turn is wanted.
	SpinAlways
)

// A loop that spins by SpinBudget or SpinAlways does not keep the turn meanwhile:
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
type watchEnd uint8

const (
	watchFound  watchEnd = iota // the loop holds: there is something
	watchOver                   // the loop holds: there was nothing
	watchLost                   // a driver holds, who arms when it leaves
	watchClosed                 // the sleeper was closed; the turn was given up
)

// watch lets the turn go and looks again and again whether there is something to do.
// The caller is the loop, holds, and found nothing.
func (t *Token) watch() watchEnd {
	t.stats.Spins.Add(1)
	t.glance(brief)
	spared := t.spared()
	var sp spell
	for mine := true; ; {
		if mine {
			t.drop(watched) // or it is given to who knocks
			mine = false
		}
		model.Mark("watch", sp.local())
		over := t.breathe(&sp)
		wake := t.look(&sp)
		if wake&WakeClosed != 0 {
			t.wait(wantLoop, t.baton)
			t.drop(asleep)
			return watchClosed
		}
		if over && t.spared() != spared {
			spared, over = t.spared(), false
			sp = spell{}
		}
		model.Mark("watching", 2*sp.local()+ifTrue(over))
		model.Yield("watch.take")
		s := t.word.Load()
		switch {
		case s == watched:
			if !t.word.CompareAndSwap(watched, held|brief) {
				continue
			}
			model.Mark("looking", 2*sp.local()+ifTrue(over))
			model.Yield("loop")
			found := t.work.Errands()
			if !found {
				model.Yield("turn")
				found = t.work.Turn(false)
			}
			if !found && !over {
				mine = true
				continue
			}
			t.glance(0)
			if found {
				t.met()
				return watchFound
			}
			t.vain()
			return watchOver
		case t.work.Errands():
			t.wait(wantLoop, t.baton)
			return watchFound
		case over:
			if t.word.CompareAndSwap(s, s&^spun) {
				t.vain()
				return watchLost
			}
		}
	}
}

// spared asks what the spinning was good for.
func (t *Token) spared() uint64 {
	if t.cfg.Spared == nil {
		return 0
	}
	return t.cfg.Spared()
}

// glance says in the word whether the loop, which holds, does so for one turn only.
func (t *Token) glance(how uint32) {
	for {
		s := t.word.Load()
		if t.word.CompareAndSwap(s, s&^brief|how) {
			return
		}
	}
}

// lend leaves the turn to the loop that spins: it looks at once, so that nothing
// need be armed for it. False: it spins no more, or somebody wants the turn.
func (t *Token) lend() bool {
	model.Yield("lend")
	if !t.word.CompareAndSwap(held|spun, watched) {
		return false
	}
	t.stats.Lent.Add(1)
	return true
}
