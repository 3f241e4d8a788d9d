package reactor

import "time"

// If many goroutines submit one send each, every send may cost a doorbell. With Config.FlushDelay
// a pass holds a queue's sends back for a while:
//
//	           in a pass, while these conditions hold: sends of
//	           the queue are outstanding, fewer than FlushBatch
//	           are unposted, slots are free, flushAll is not set
//	submitted ───────────────────────────────────────────────> delayed
//	    │ otherwise                                              │ a condition no longer holds,
//	    │                                                        │ or FlushDelay has passed
//	    └───────────────────────> posted <───────────────────────┘
//
// So a send of a queue without outstanding sends is never held back. When the last outstanding send
// completes, the next pass posts the delayed sends.
//
// If Reactor.flushAll is set, the pass holds no send back. The field is set
//
//   - in a pass that arms, because the holder is about to give the turn up. So all sends are posted
//     before the passes stop. (Otherwise a timer would have to wake the loop, which costs more than
//     a doorbell.) A holder that hands the turn to another goroutine does not arm. Its
//     delayed sends may stay delayed, because the next holder runs passes.
//   - in the first pass of a driver or of TransferWait, because the goroutine's own send may be
//     delayed. While the goroutine waits, it submits no more sends, so later passes need not do
//     this.
//   - in the pass of Flush.
//
// A delayed send is submitted but unposted. So the user must not change its buffer. Seal and
// Release end the send without posting it. The function given to Queue.Idle is called after the send
// has ended.

// beginDelays computes flushAll for this pass. Holder only, like everything in this file.
func (r *Reactor) beginDelays(arm bool) {
	drives := r.tok.Stats().Drives.Load() // a driver increments the counter before its first pass
	r.flushAll = r.flushAsked || arm || r.ownBacklog != nil || drives != r.lastDrives
	r.flushAsked, r.lastDrives, r.delayClock = false, drives, 0
}

// delay holds the queue's backlog back if mayDelay returns true, and reports whether it did. The
// backlog must not be empty.
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

// gatherDelayed moves delayed backlogs into the batch, except those that may be held back longer.
// If gatherSends has just held back new sends of a queue, mayDelay is called a second time here. It
// returns true again, because nothing that it reads has changed.
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

// delayedUntil returns the earlier of two times: then, and the earliest time at which a delayed
// backlog must be posted. A zero time means never. NextTimer uses it for stepped reactors; other
// reactors need no timer (see flushAll above).
func (r *Reactor) delayedUntil(then time.Time) time.Time {
	for _, q := range r.delayed {
		if at := r.timers.base.Add(q.backlog.since + r.cfg.FlushDelay); q.backlog.delayed && (then.IsZero() || at.Before(then)) {
			then = at
		}
	}
	return then
}
