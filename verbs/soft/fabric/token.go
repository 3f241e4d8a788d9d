package fabric

import "sync/atomic"

// token is the exclusive right to run an endpoint. A caller with work for the endpoint
// becomes the runner or leaves a mark, and never waits. Exclusive may wait for the token.
//
//	         take, tryTake               take: a mark; await: awaited or due
//	idle ───────────────────► running ─────────────────────────────────────► with these
//	 ▲                         ▲   │                                           │
//	 │ release                 │   │                                           │
//	 ├─────────────────────────┼───┘                                           │
//	 ├─────────────────────────┼───────────────────────────────────────────────┤ release, not due
//	 │                         └───────────────────────────────────────────────┘ release, due:
//	                                              the waiter is the runner
//
// The runner moved the token from idle to running, or was handed it. Only the runner
// releases. When release reports a mark, the runner must have the endpoint run again: it
// queues the endpoint and takes the token anew, or gives it to the pacemaker. When release
// reports a waiter, the runner must wake it.
//
// No mark is lost: work is published before take. Either take succeeds, and the taker runs the
// endpoint afterwards; or it leaves or finds the mark, which the release of the current runner,
// later in the order of this one word, returns. The word is written by every goroutine and also
// publishes the endpoint's own fields from one runner to the next.
type token struct{ word atomic.Uint32 }

// The word is idle, or running combined with any of the flags below it.
const (
	idle    uint32 = 0
	running uint32 = 1 << (iota - 1)
	marked
	awaited // release wakes the waiter
	due     // with awaited: release makes the waiter the runner
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

// await asks the runner to wake the caller when it releases, and with first also to hand it
// the token. It reports false when the token is idle. One waiter at a time.
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

// release ends the caller's run. It reports whether a mark was left meanwhile, and whether
// the caller must wake a waiter.
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
