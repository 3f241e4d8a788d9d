package reactor

import "time"

// A doorbell for each send is what many goroutines with one send each would ask for. With
// Config.FlushDelay a turn leaves a queue's sends unposted for a while:
//
//	           taken, and all of: sends of the queue are out,
//	           fewer than FlushBatch, room for more of them
//	submitted ───────────────────────────────────────────────> kept
//	    │ otherwise                                              │ one of them no more, or
//	    │                                                        │ FlushDelay, or a hurry
//	    └───────────────────────> posted <───────────────────────┘
//
// So a send without others is never kept, nor is any when the queue has run dry: what was
// out has completed, and a turn follows that posts what was kept for it.
//
// In a hurry is
//
//   - who is about to arm, that is to give the turn up: nothing is kept while nobody
//     turns, so that no timer need wake the loop, which would cost more than the doorbell,
//     and be later. Only a driver who leaves the turn to the loop for an errand may leave
//     something kept: the loop is on its way then.
//   - a driver in its first turn: its own send may be among the kept, and it was
//     submitted before. What comes later is others'.
//   - Flush.
//
// A send that is kept is none of the device's: a buffer may not be changed, but the queue
// can still refuse it (Seal, Release), and Idle waits for it.

// kept are the sends of a queue that were taken from its stack and not posted, oldest
// first, linked as on the stack. The holder's.
type kept struct {
	first, last uint32
	n           int
	since       time.Duration // when the first was taken, on the timers' clock
	listed      bool          // in Reactor.keeping
}

// beginKeeping finds out whether this turn is in a hurry. Holder only, as all of this file.
func (r *Reactor) beginKeeping(arm bool) {
	drives := r.tok.Stats().Drives.Load() // counted by the holder, before its first turn
	r.hurry = r.asked || arm || r.lone != nil || drives != r.keepDrives
	r.asked, r.keepDrives, r.keptAt = false, drives, 0
}

// listOrKeep is list for n new sends, behind those that were kept, unless they are kept.
func (q *Queue) listOrKeep(first uint32, n int) bool {
	if n == 0 {
		return false // gatherKept looks at the others
	}
	k := &q.kept
	keep := q.mayKeep(k.n + n)
	if k.n > 0 {
		q.sendStack.Join(k.last, first)
	} else {
		k.first, k.since = first, q.r.keptAt
	}
	k.n += n
	if !keep {
		q.listKept()
		return true
	}
	for range n - 1 {
		first = q.sendStack.Next(first)
	}
	k.last = first
	if !k.listed {
		k.listed = true
		q.r.keeping = append(q.r.keeping, q)
		q.r.stats.KeptBack++
	}
	return true
}

// mayKeep tells whether n sends of the queue may be held back in this turn.
func (q *Queue) mayKeep(n int) bool {
	r, out := q.r, q.order.len()
	if r.hurry || out == 0 || n >= r.cfg.FlushBatch || n+out >= q.cfg.SendDepth || q.released || q.sealed || q.qp == nil {
		return false
	}
	if r.keptAt == 0 {
		r.keptAt = r.clock()
	}
	if q.kept.n > 0 && r.keptAt-q.kept.since >= r.cfg.FlushDelay {
		r.stats.Overdue++
		return false
	}
	return true
}

func (q *Queue) listKept() {
	n := q.kept.n
	q.kept.n = 0
	q.list(q.kept.first, n)
}

// gatherKept looks at what is kept: of those that got something new in this turn that is
// decided already, and comes out the same.
func (r *Reactor) gatherKept() (did bool) {
	left := r.keeping[:0]
	for _, q := range r.keeping {
		if k := &q.kept; k.n > 0 && !q.mayKeep(k.n) {
			q.listKept()
			did = true
		}
		if q.kept.listed = q.kept.n > 0; q.kept.listed {
			left = append(left, q)
		}
	}
	clear(r.keeping[len(left):])
	r.keeping = left
	return did
}

// keptUntil is when the first of the kept must be posted, or then if that is earlier.
func (r *Reactor) keptUntil(then time.Time) time.Time {
	for _, q := range r.keeping {
		if at := r.timers.base.Add(q.kept.since + r.cfg.FlushDelay); q.kept.n > 0 && (then.IsZero() || at.Before(then)) {
			then = at
		}
	}
	return then
}
