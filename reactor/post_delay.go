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

// beginDelays finds out whether this turn is in a hurry. Holder only, as all of this file.
func (r *Reactor) beginDelays(arm bool) {
	drives := r.tok.Stats().Drives.Load() // counted by the holder, before its first turn
	r.flushAll = r.flushAsked || arm || r.ownBacklog != nil || drives != r.lastDrives
	r.flushAsked, r.lastDrives, r.delayClock = false, drives, 0
}

// delay holds the backlog back, if it may be; it is not empty.
func (q *Queue) delay() bool {
	if !q.mayDelay() {
		return false
	}
	if b := &q.backlog; !b.delayed {
		b.delayed, b.since = true, q.r.delayClock
		q.r.delayed = append(q.r.delayed, q)
		q.r.stats.Delayed++
	}
	return true
}

// mayDelay reports whether the backlog may be held back in this turn.
func (q *Queue) mayDelay() bool {
	r, b, out := q.r, &q.backlog, q.order.len()
	if r.flushAll || out == 0 || b.n >= r.cfg.FlushBatch || b.n+out >= q.cfg.SendDepth || q.released || q.sealed || q.qp == nil {
		return false
	}
	if r.delayClock == 0 {
		r.delayClock = r.clock()
	}
	if b.delayed && r.delayClock-b.since >= r.cfg.FlushDelay {
		r.stats.Overdue++
		return false
	}
	return true
}

// gatherDelayed looks at what is kept: of those that got something new in this turn that is
// decided already, and comes out the same.
func (r *Reactor) gatherDelayed() (did bool) {
	left := r.delayed[:0]
	for _, q := range r.delayed {
		if q.backlog.delayed && !q.mayDelay() {
			q.list()
			did = true
		}
		if q.backlog.delayed {
			left = append(left, q)
		}
	}
	clear(r.delayed[len(left):])
	r.delayed = left
	return did
}

// delayedUntil is when the first of the kept must be posted, or then if that is earlier.
func (r *Reactor) delayedUntil(then time.Time) time.Time {
	for _, q := range r.delayed {
		if at := r.timers.base.Add(q.backlog.since + r.cfg.FlushDelay); q.backlog.delayed && (then.IsZero() || at.Before(then)) {
			then = at
		}
	}
	return then
}
