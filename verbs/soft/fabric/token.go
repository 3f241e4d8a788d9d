package fabric

import "sync/atomic"

// token says who runs an endpoint. Whoever wants it run becomes the runner or leaves a
// mark, and never waits. Whoever needs the endpoint to himself (Exclusive) may wait for it.
//
//	         take, tryTake               take: a mark; await: awaited or due
//	idle ───────────────────► running ─────────────────────────────────────► with these
//	 ▲                         ▲   │                                           │
//	 │ release                 │   │                                           │
//	 ├─────────────────────────┼───┘                                           │
//	 ├─────────────────────────┼───────────────────────────────────────────────┤ release, not due
//	 │                         └───────────────────────────────────────────────┘ release, due:
//	                                              the one who waits is the runner
//
// The runner is whoever moved it from idle to running, or was handed it; only the runner
// releases. release tells the runner of a mark: he must see to it that the endpoint is run
// again, by queueing it and taking it anew, or by giving it to the pacemaker. And it tells
// of one who waits: he must be woken.
//
// No mark is lost: work is published before take. Either take succeeds, and
// the taker turns the endpoint after; or it leaves or finds the mark, which
// the release of the current runner, later in the order of this one word,
// returns. The word is written by everybody and also publishes the endpoint's
// own fields from one runner to the next.
type token struct{ word atomic.Uint32 }

// idle is the word when nobody runs the endpoint, and running without the flags when
// somebody does.
const (
	idle    uint32 = 0
	running uint32 = 1 << (iota - 1)
	marked
	awaited // somebody waits to be woken when the runner releases
	due     // with awaited: and to be the runner then
)

// take makes the caller the runner, or leaves a mark. It does not block.
func (t *token) take() bool {
	for {
		switch w := t.word.Load(); {
		case w == idle:
			if t.word.CompareAndSwap(idle, running) {
				return true
			}
		case w&marked != 0:
			return false
		case t.word.CompareAndSwap(w, w|marked):
			return false
		}
	}
}

// tryTake makes the caller the runner if there is none, and leaves no mark.
func (t *token) tryTake() bool { return t.word.CompareAndSwap(idle, running) }

// await asks the runner to wake the caller when he releases, and with first to leave the
// token to the caller; false when nobody runs the endpoint. One at a time.
func (t *token) await(first bool) bool {
	flags := awaited
	if first {
		flags |= due
	}
	for {
		w := t.word.Load()
		if w == idle {
			return false
		}
		if t.word.CompareAndSwap(w, w|flags) {
			return true
		}
	}
}

// release ends the caller's run and tells whether a mark was left meanwhile, and whether
// somebody waits, whom the caller must wake.
func (t *token) release() (wasMarked, wake bool) {
	if t.word.CompareAndSwap(running, idle) {
		return false, false
	}
	return t.releaseFlagged()
}

// releaseFlagged is release when there may be flags.
func (t *token) releaseFlagged() (wasMarked, wake bool) {
	for {
		w, next := t.word.Load(), idle
		if w&due != 0 {
			next = running
		}
		if t.word.CompareAndSwap(w, next) {
			return w&marked != 0, w&awaited != 0
		}
	}
}
