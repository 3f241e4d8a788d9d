package fabric

import "sync/atomic"

// token says who runs an endpoint. Whoever wants it run either becomes the
// runner or leaves a mark, and never waits.
//
//	         take: true                    take: false
//	idle ───────────────────► running ────────────────────► marked ─┐
//	 ▲                           │                            │ ▲   │ take: false
//	 │◄──────────────────────────┘ release: false             │ └───┘
//	 └────────────────────────────────────────────────────────┘ release: true
//
// The runner is whoever moved it from idle to running; only the runner
// releases. A release that returns true hands the mark to the runner, who must
// see to it that the endpoint is run again: by queueing it and taking it anew,
// or by giving it to the pacemaker.
//
// No mark is lost: work is published before take. Either take succeeds, and
// the taker turns the endpoint after; or it leaves or finds the mark, which
// the release of the current runner, later in the order of this one word,
// returns. The word is written by everybody and also publishes the endpoint's
// own fields from one runner to the next.
type token struct{ word atomic.Uint32 }

const (
	idle uint32 = iota
	running
	marked
)

// take makes the caller the runner, or leaves a mark. It does not block.
func (t *token) take() bool {
	for {
		switch t.word.Load() {
		case idle:
			if t.word.CompareAndSwap(idle, running) {
				return true
			}
		case running:
			if t.word.CompareAndSwap(running, marked) {
				return false
			}
		default: // marked
			return false
		}
	}
}

// tryTake makes the caller the runner if there is none, and leaves no mark.
func (t *token) tryTake() bool { return t.word.CompareAndSwap(idle, running) }

// release ends the caller's run and tells whether a mark was left meanwhile.
func (t *token) release() (wasMarked bool) { return t.word.Swap(idle) == marked }
