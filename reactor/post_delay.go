package reactor

import "time"

// If many goroutines submit one send each, every send may cost a doorbell. With Config.FlushDelay
// a pass holds a queue's sends back for a while:
//
//	           gathered, and all of: sends of the queue are outstanding,
//	           fewer than FlushBatch wait, there are slots for more
//	submitted ───────────────────────────────────────────────> delayed
//	    │ otherwise                                              │ a condition ended, FlushDelay
//	    │                                                        │ has passed, or flushAll
//	    └───────────────────────> posted <───────────────────────┘
//
// So a send of a queue without outstanding sends is never held back. When the last outstanding
// send completes, the next pass posts the delayed ones.
//
// The field flushAll means that a pass holds no send back. It is set
//
//   - in a pass that arms: the holder is about to give the turn up. So no send stays delayed while no
//     goroutine runs passes, and no timer has to wake the loop, which would cost more than the
//     doorbell. (A holder that hands the turn over does not arm; the next holder runs a pass.)
//   - in the first pass of a driver or of TransferWait, because the goroutine's own send may be among
//     the delayed ones. Sends submitted later belong to other goroutines.
//   - in the pass of Flush.
//
// A delayed send is submitted but unposted: the user must not change its buffer, Seal and Release
// may still refuse it, and Idle waits for it.

// beginDelays computes flushAll for this pass. Holder only, as everything in this file.
func (r *Reactor) beginDelays(arm bool) {
	drives := r.tok.Stats().Drives.Load() // a driver increments it before its first pass
	r.flushAll = r.flushAsked || arm || r.ownBacklog != nil || drives != r.lastDrives
	r.flushAsked, r.lastDrives, r.delayClock = false, drives, 0
}

// delay holds the backlog back if mayDelay permits it, and reports whether it did. The backlog is
// not empty.
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

// gatherDelayed moves the backlogs that may not be delayed any longer into the pass. A queue with
// new sends in this pass has asked mayDelay before, in gatherSends; the answer is the same now.
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

// delayedUntil returns the earlier of two times: the argument then (zero: never), and the time at
// which the first delayed backlog must be posted.
func (r *Reactor) delayedUntil(then time.Time) time.Time {
	for _, q := range r.delayed {
		if at := r.timers.base.Add(q.backlog.since + r.cfg.FlushDelay); q.backlog.delayed && (then.IsZero() || at.Before(then)) {
			then = at
		}
	}
	return then
}
