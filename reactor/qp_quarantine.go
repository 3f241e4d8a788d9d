package reactor

import (
	"errors"
	"fmt"
)

// A released queue stays in quarantine until two conditions hold:
//
//   - No goroutine can touch the queue's memory. A submitter in the middle of a call holds a slot,
//     and a later submitter finds that the queue has failed. So no submitter is left when all slots
//     are free.
//   - No completion of the queue can come. A destroyed queue pair may leave completions in the
//     completion queues. No completion is left when both completion queues have been polled empty
//     after the release.

// quarantine is what a released queue needs in addition. An idle queue is smaller without it.
type quarantine struct {
	err error  // of the requests that Release ends
	at  uint64 // the pass in which the queue was released
	// sends, recvs and ctrls are how many free slots of each kind reclaim has collected.
	sends, recvs, ctrls int
}

// released reports whether Release was called. Only the holder may call it.
func (q *Queue) released() bool { return q.quarantine != nil }

// Release ends the queue. The caller must have destroyed the queue pair, so that the device no
// longer touches the queue's memory. Release completes all remaining requests before it returns.
// The error of these requests wraps the argument cause and, if the queue had failed before, the
// cause of that failure. Completions that come later match no queue and are dropped. Only the holder
// may call Release. Release is idempotent.
func (q *Queue) Release(cause error) error {
	if q.released() {
		return nil
	}
	q.Fail(cause)
	r := q.r
	end := q.failed.get()
	if !errors.Is(end, cause) {
		end = fmt.Errorf("%w: %w", end, cause)
	}
	q.quarantine = &quarantine{err: end, at: r.stats.Passes}
	r.sinks.release() // a cached slot of the queue would keep the queue in quarantine
	q.clearPeerLimit()
	if q.srq == nil { // receives of a SharedRecv are never flushed, so they do not count
		r.stats.Unflushed += uint64(q.order.n + q.recvs)
	}
	for q.order.n > 0 {
		r.outstanding--
		q.finish(q.order.pop(), Completion{}, end)
	}
	for i := q.cfg.firstRecv(); i < q.cfg.slots(); i++ {
		if q.tab.posted(uint32(i)) != nil {
			q.recvs--
			q.finish(uint32(i), Completion{Kind: KindRecv}, end)
		}
	}
	q.gatherSends() // refuses the unposted requests
	if q.hasRecvs() {
		q.gatherRecvs()
	}
	q.freeRetired()
	q.checkIdle()
	r.queues[q.id] = nil
	r.freeIDs = append(r.freeIDs, q.id)
	r.live--
	r.quarantined = append(r.quarantined, q)
	r.deliver()
	return nil
}

// scheduleReclaim schedules a task, which causes a pass. The pass reclaims the queue if the slot that
// the caller has freed was the last slot that kept the queue in quarantine. Waking the loop would not
// suffice: a holder that has already called reclaimAll in its pass runs another pass only if
// something is pending, such as a task. After Close no queue is in quarantine, so no pass is needed.
// Any goroutine may call scheduleReclaim.
func (q *Queue) scheduleReclaim() {
	if !q.r.closed.Load() {
		q.r.Schedule(&q.r.reclaimTask, false)
	}
}

// reclaimAll calls reclaim for each quarantined queue. If the device refuses to give back a queue's
// memory, the next reclaimAll tries again, and Close returns the error.
func (r *Reactor) reclaimAll() {
	kept := r.quarantined[:0]
	r.reclaimErr = nil
	for _, q := range r.quarantined {
		gone, err := q.reclaim()
		if gone {
			r.forget(q)
		} else {
			kept = append(kept, q)
		}
		if err != nil {
			r.reclaimErr = err
		}
	}
	clear(r.quarantined[len(kept):])
	r.quarantined = kept
	if len(kept) == 0 && r.reclaimed != nil {
		close(r.reclaimed)
		r.reclaimed = nil
	}
}

// forget clears the references to a reclaimed queue in r.outcomes, including the entries between the
// length and the capacity of r.outcomes.
func (r *Reactor) forget(q *Queue) {
	all := r.outcomes[:cap(r.outcomes)]
	for i := range all {
		if all[i].queue == q {
			all[i].queue = nil
		}
	}
}

// reclaim gives back q's memory and q's entries in the completion queues, if q may leave the
// quarantine. It reports whether q has left the quarantine. If the device refuses to give back the
// memory, reclaim returns the device's error. First of all reclaim collects the free slots, so that no
// submitter can acquire them.
func (q *Queue) reclaim() (gone bool, err error) {
	home := q.quarantine
	if q.sendFree != nil {
		collect(q.sendFree.Collect, &home.sends)
	}
	if q.recvFree != nil {
		collect(q.recvFree.Get, &home.recvs)
	}
	if q.ctrlFree != nil {
		collect(q.ctrlFree.Get, &home.ctrls)
	}
	if home.sends < q.cfg.SendDepth || home.recvs < q.cfg.RecvDepth || home.ctrls < q.cfg.ControlDepth {
		return false, nil
	}
	if !q.sendCQ.emptySince(home.at) || !q.recvCQ.emptySince(home.at) {
		return false, nil
	}
	if err := q.Discard(); err != nil {
		return false, err
	}
	q.releaseCQEntries()
	return true, nil
}

func collect(get func() (uint32, bool), home *int) {
	for {
		if _, ok := get(); !ok {
			return
		}
		*home++
	}
}

// emptySince reports whether the completion queue was polled empty in a pass after the pass with the
// given number. A dead completion queue gives no more completions and counts as empty.
func (s *cqState) emptySince(pass uint64) bool { return s.dead || s.emptyAt > pass }

// Discard gives back the queue's memory. The owner calls Discard only for a queue that was never
// admitted.
func (q *Queue) Discard() error {
	q.Fail(ErrClosed)
	if err := q.tab.free(); err != nil {
		return err
	}
	if s := q.tab.slab; s != nil {
		q.tab.slab = nil
		q.r.leaveSlab(s)
	}
	return nil
}

var errUnbound = errors.New("the queue has no queue pair yet")
