package reactor

import (
	"slices"
	"time"
)

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
// If Reactor.flushAll is set, the pass holds no send back. The field is set:
//
//   - in a pass that arms, because the holder is about to give the turn up. So all sends are posted
//     before the passes stop. (Otherwise a timer would have to wake the loop, which costs more than
//     a doorbell.) A holder that hands the turn to another goroutine does not arm: sends may stay
//     delayed, because the next holder runs passes.
//   - in the first pass of a driver or of TransferWait, because the goroutine's own send may be
//     delayed. While the goroutine waits, it submits no more sends, so flushAll need not be set in
//     later passes.
//   - in the pass of Flush.
//
// The user must not change the buffer of a delayed send, because the device has not read the buffer
// yet. (The same holds for every submitted send.) If Seal or Release is called, the delayed send ends
// without being posted. A function given to Queue.Idle is called only after the delayed send has ended.

// beginDelays computes flushAll for this pass. Only the holder of the turn calls the functions of
// this file.
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
	r, b, out := q.r, &q.backlog, q.order.n
	if r.flushAll || out == 0 || b.n >= r.cfg.FlushBatch || b.n+out >= q.cfg.SendDepth || q.released() || q.sealed || q.qp == nil {
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
// If gatherSends has just held back new sends of a queue, gatherDelayed calls mayDelay for this queue
// a second time in the pass. mayDelay returns true again, because its inputs have not changed.
func (r *Reactor) gatherDelayed() (did bool) {
	left := r.delayed[:0]
	for _, q := range r.delayed {
		if q.backlog.delayed && !q.mayDelay() {
			if q.hasRecvs() && !slices.Contains(r.recvOwners, q) {
				q.gatherRecvs() // receives of PostRecvLater are posted with the queue's next send
			}
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

// delayedUntil returns its argument, or the earliest time at which a delayed backlog must be posted,
// whichever is earlier. A zero time means never. Only NextTimer calls delayedUntil, for stepped
// reactors. Other reactors need no timer for delayed sends (see flushAll above).
func (r *Reactor) delayedUntil(then time.Time) time.Time {
	for _, q := range r.delayed {
		if at := r.timers.base.Add(q.backlog.since + r.cfg.FlushDelay); q.backlog.delayed && (then.IsZero() || at.Before(then)) {
			then = at
		}
	}
	return then
}
