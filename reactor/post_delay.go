package reactor

import "time"

// If many goroutines have one send each, every send would cost a doorbell. With
// Config.FlushDelay a pass holds a queue's sends back for a while:
//
//	           gathered, and all of: sends of the queue are outstanding,
//	           fewer than FlushBatch wait, there are slots for more
//	submitted ───────────────────────────────────────────────> delayed
//	    │ otherwise                                              │ a condition ended, FlushDelay
//	    │                                                        │ has passed, or flushAll
//	    └───────────────────────> posted <───────────────────────┘
//
// So a single send is never held back, nor is any when the queue has nothing outstanding: after
// the outstanding sends have completed, a pass follows that posts the delayed ones.
//
// flushAll is set
//
//   - if the holder is about to arm, that is to give the turn up. No send is delayed while no
//     goroutine runs passes, so no timer need wake the loop, which would cost more than the
//     doorbell, and be later. Only a driver that leaves the turn to the loop for loop tasks may
//     leave sends delayed: the loop is about to run then.
//   - in a driver's first pass: its own send may be among the delayed ones, as it was submitted
//     before. Later sends belong to other goroutines.
//   - by Flush.
//
// The device does not have a delayed send: its buffer must not be changed, but the queue can
// still refuse it (Seal, Release), and Idle waits for it.

// beginDelays computes flushAll for this pass. Holder only, as everything in this file.
func (r *Reactor) beginDelays(arm bool) {
	drives := r.tok.Stats().Drives.Load() // counted by the holder, before its first pass
	r.flushAll = r.flushAsked || arm || r.ownBacklog != nil || drives != r.lastDrives
	r.flushAsked, r.lastDrives, r.delayClock = false, drives, 0
}

// delay holds the backlog, which is not empty, back if possible, and reports whether it did.
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

// mayDelay reports whether the backlog may be held back in this pass.
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

// gatherDelayed lists the backlogs that may not be delayed any longer. For queues with new sends
// in this pass delay has decided that already, with the same result.
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

// delayedUntil returns when the first delayed backlog must be posted, or then if that is earlier.
func (r *Reactor) delayedUntil(then time.Time) time.Time {
	for _, q := range r.delayed {
		if at := r.timers.base.Add(q.backlog.since + r.cfg.FlushDelay); q.backlog.delayed && (then.IsZero() || at.Before(then)) {
			then = at
		}
	}
	return then
}
