package actor

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// word says whether an actor is to be run, and by whom.
//
//	        wake               run                 wake
//	idle ─────────> scheduled ─────> running ────────────────> rescan
//	 ^                  ^              │ │ ^                     │ │
//	 │       rest       │    again     │ │ └──────── rest ───────┘ │
//	 ├──────────────────┼──────────────┼─┘   (look once more)      │
//	 │                  └──────────────┴───────────────────────────┘
//	 │                     again                       end
//	 └ (nothing was there)              running, rescan ──────> ended
//
// One goroutine at a time is between run and rest, again or end; it alone touches
// what belongs to the actor. The wake that moves idle to scheduled owes one
// enqueueing, and again owes the next: so at most one is under way.
//
// No wake-up is lost: who pushes something publishes it and then reads the word.
// He finds idle and schedules; or scheduled, and run stores running before anything
// is looked for; or running, and leaves rescan, so that rest fails and the runner looks
// again; or rescan, which rest has yet to take back, before it looks. All of these
// are sequentially consistent, so what was published is seen by that look.
type word struct {
	// s: moved by wake (any goroutine) and by the runner; publishes to the next
	// runner all that the last one did.
	s atomic.Uint32
}

const (
	idle uint32 = iota
	scheduled
	running
	rescan
	ended
)

// wake is called after something was published. True: the caller enqueues the
// actor. Any goroutine; it does not block.
func (w *word) wake() bool {
	for {
		model.Fresh("wake")
		switch s := w.s.Load(); s {
		case idle:
			model.Yield("wake idle")
			if w.s.CompareAndSwap(idle, scheduled) {
				return true
			}
		case running:
			model.Yield("wake running")
			if w.s.CompareAndSwap(running, rescan) {
				return false
			}
		default:
			return false
		}
	}
}

// run begins an activation.
func (w *word) run() {
	model.Yield("run")
	w.s.Store(running)
}

// rest ends an activation that found nothing more. False: look again.
func (w *word) rest() bool {
	model.Yield("rest")
	if w.s.CompareAndSwap(running, idle) {
		return true
	}
	model.Yield("rest again")
	w.s.Store(running) // it was rescan, which only the runner changes
	return false
}

// again ends an activation that leaves something. The caller enqueues the actor.
func (w *word) again() {
	model.Yield("again")
	w.s.Store(scheduled)
}

// end ends the last activation.
func (w *word) end() {
	model.Yield("end")
	w.s.Store(ended)
}

func (w *word) hasEnded() bool { return w.s.Load() == ended }
