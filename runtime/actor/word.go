package actor

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// word is the scheduling state of an actor. It shows whether the actor has work, and whether it runs.
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
// The runner is the goroutine that runs the actor. An activation begins with run. It ends with again,
// with end, or with a call of rest that returns true. Only the runner touches the actor's data. If
// wake changes the word from idle to scheduled, the caller of wake enqueues the actor. After a call
// of again, the runner enqueues the actor. So the actor is never in the queue twice.
//
// No wake-up is lost. A goroutine first publishes its event, and then reads the word. It finds one of
// these states:
//
//	idle        it sets scheduled and enqueues the actor
//	scheduled   run stores running before the runner looks for events
//	running     it sets rescan: rest fails, and the runner looks again
//	rescan      rest stores running before the runner looks again
//	ended       the actor has ended: core.sweep discards the event
//
// All these accesses are sequentially consistent. So in the first four states the runner sees the
// event when it looks.
type word struct {
	// s is one of the states below. The runner changes it, and any goroutine may change it with
	// wake. It publishes the writes of one runner to the next runner.
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

// rest ends an activation that has found nothing more to do. If rest returns false, the activation
// continues, and the runner looks again.
func (w *word) rest() bool {
	model.Yield("rest")
	if w.s.CompareAndSwap(running, idle) {
		return true
	}
	model.Yield("rest again")
	w.s.Store(running) // the word was rescan, and only the runner changes rescan
	return false
}

// again ends an activation that leaves work. The caller must then enqueue the actor.
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
