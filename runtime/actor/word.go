package actor

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// word is the scheduling state of an actor: whether it has work, and whether it runs.
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
// The runner is the one goroutine that has called run and not yet rest, again or end; it alone
// touches the actor's data. A call of wake that moves the word from idle to scheduled obliges its
// caller to enqueue the actor; a call of again obliges the runner. So the actor is enqueued at most
// once.
//
// No wake-up is lost: a goroutine publishes its event first and reads the word after that. It finds
// one of four states:
//
//	idle        it sets scheduled and enqueues the actor
//	scheduled   run stores running before the runner looks for events
//	running     it sets rescan: rest fails, and the runner looks again
//	rescan      rest stores running before the runner looks again
//
// All these accesses are sequentially consistent, so the runner's look sees the event.
type word struct {
	// s is changed by wake (any goroutine) and by the runner; it publishes the last runner's writes
	// to the next runner.
	s atomic.Uint32
}

const (
	idle uint32 = iota
	scheduled
	running
	rescan
	ended
)

// wake is called after an event was published. If it returns true, the caller enqueues the actor.
// Any goroutine may call it; it does not block.
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

// rest ends an activation that found nothing more. If it returns false, the runner looks again.
func (w *word) rest() bool {
	model.Yield("rest")
	if w.s.CompareAndSwap(running, idle) {
		return true
	}
	model.Yield("rest again")
	w.s.Store(running) // the word was rescan, and only the runner changes rescan
	return false
}

// again ends an activation that leaves work. The caller enqueues the actor.
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
