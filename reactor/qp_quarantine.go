package reactor

import (
	"errors"
	"fmt"
)

// A released queue stays in quarantine until no goroutine can touch its memory and none of its
// completions can come. A submitter on its way holds a slot; when all slots are free, there is
// none: a later submitter finds the queue's failure. Completions may still wait in the completion
// queues of a device that does not remove them with the queue pair; when both were polled empty,
// there are none.

// Release ends the queue. Its queue pair must have been destroyed: the device touches no memory
// of it any more. All requests that have not completed do so before Release returns, with cause,
// and with the queue's failure if that is something else; late completions find no queue and are
// dropped. Holder only; idempotent.
func (q *Queue) Release(cause error) error {
	if q.released {
		return nil
	}
	q.Fail(cause)
	q.released = true
	r := q.r
	r.sinks.release() // slots may be cached only while a request of their queue is to complete
	end := q.failed.get()
	if !errors.Is(end, cause) {
		end = fmt.Errorf("%w: %w", end, cause)
	}
	q.releaseErr = end
	q.clearPeerLimit()
	if q.srq == nil { // shared receives are never flushed
		r.stats.Unflushed += uint64(q.order.len() + q.recvs)
	}
	for q.order.len() > 0 {
		r.outstanding--
		q.finish(q.order.pop(), Completion{}, end)
	}
	for i := q.cfg.sends(); i < len(q.tab.slots); i++ {
		if q.tab.slots[i].posted {
			q.recvs--
			q.finish(uint32(i), Completion{Kind: KindRecv}, end)
		}
	}
	q.gatherSends() // refuses requests submitted since the last pass
	if q.hasRecvs() {
		q.gatherRecvs()
	}
	q.freeRetired()
	q.checkIdle()
	r.queues[q.id] = nil
	r.freeIDs = append(r.freeIDs, q.id)
	r.live--
	q.quarantinedAt = r.stats.Passes
	r.quarantined = append(r.quarantined, q)
	r.deliver()
	return nil
}

// scheduleReclaim schedules a pass, which reclaims the queue if it was released and waited for
// the slot that the caller has just freed. Waking the loop is not enough: a holder that has
// called reclaimAll and is about to leave checks only for pending work. After Close no queue
// waits. Any goroutine may call it.
func (q *Queue) scheduleReclaim() {
	if !q.r.closed.Load() {
		q.r.Schedule(&q.r.reclaimTask, false)
	}
}

// reclaimAll gives back the memory and the completion queue entries of quarantined queues. If the
// device refuses, the next reclaimAll tries again, and Close returns the error.
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

// forget clears the references to a reclaimed queue in all outcomes, free ones too.
func (r *Reactor) forget(q *Queue) {
	all := r.outcomes[:cap(r.outcomes)]
	for i := range all {
		if all[i].queue == q {
			all[i].queue = nil
		}
	}
}

// reclaim gives q's memory back if it can. It reports whether it did, and why the device refused.
// It collects the free slots, which no submitter can acquire then.
func (q *Queue) reclaim() (gone bool, err error) {
	r := q.r
	if q.sendFree != nil {
		collect(q.sendFree.Collect, &q.reclaimedSends)
	}
	if q.recvFree != nil {
		collect(q.recvFree.Get, &q.reclaimedRecvs)
	}
	if q.ctrlFree != nil {
		collect(q.ctrlFree.Get, &q.reclaimedCtrls)
	}
	if q.reclaimedSends < q.cfg.SendDepth || q.reclaimedRecvs < q.cfg.RecvDepth || q.reclaimedCtrls < q.cfg.ControlDepth {
		return false, nil
	}
	if !r.sendCQ.emptySince(q.quarantinedAt) || !r.recvCQ.emptySince(q.quarantinedAt) {
		return false, nil
	}
	if err := q.Discard(); err != nil {
		return false, err
	}
	r.releaseCQEntries(q.cfg.sends(), q.cfg.RecvDepth)
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

// emptySince reports whether the completion queue was polled empty after pass turn; a dead one
// gives no more completions.
func (s *cqState) emptySince(turn uint64) bool { return s.dead || s.emptyAt > turn }

// Discard gives back the memory of a queue that was never admitted.
func (q *Queue) Discard() error {
	q.Fail(ErrClosed)
	if err := q.mr.Close(); err != nil {
		return err
	}
	return q.tab.arena.Unmap()
}

var errUnbound = errors.New("it has no queue pair yet")
