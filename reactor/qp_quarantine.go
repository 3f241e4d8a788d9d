package reactor

import (
	"errors"
	"fmt"
)

// A released queue stays in quarantine until no goroutine can touch its memory and none of its
// completions can come. A submitter in the middle of a call holds a slot, and a later submitter finds
// the queue's failure. So when all slots are free, no submitter is left. Destroying a queue pair
// may leave its completions in the completion queues. When both were polled empty, none is left.

// Release ends the queue. The caller must have destroyed the queue pair, so that the device no
// longer touches the queue's memory. Before Release returns it completes all remaining requests with
// an error that wraps cause and, if it is another error, the queue's failure. Late completions
// match no queue and are dropped. Holder only; idempotent.
func (q *Queue) Release(cause error) error {
	if q.released {
		return nil
	}
	q.Fail(cause)
	q.released = true
	r := q.r
	r.sinks.release() // cached slots of the queue would keep it in quarantine
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

// scheduleReclaim schedules a pass after the caller has freed a slot, which may have been the last
// that kept the queue in quarantine. Waking the loop is not enough: a holder that has already called
// reclaimAll runs another pass only if work is pending. After Close no queue is in quarantine. Any
// goroutine may call it.
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

// reclaim gives q's memory back if no goroutine or completion can need it. It reports whether it
// did, and returns the device's error if the device refused. It collects the free slots, so that
// no submitter can acquire them.
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

// emptySince reports whether the completion queue was polled empty after the pass with number
// turn, or is dead: a dead one gives no more completions.
func (s *cqState) emptySince(turn uint64) bool { return s.dead || s.emptyAt > turn }

// Discard gives back the memory of a queue that was never admitted. (The function reclaim calls
// it, too.)
func (q *Queue) Discard() error {
	q.Fail(ErrClosed)
	if err := q.mr.Close(); err != nil {
		return err
	}
	return q.tab.arena.Unmap()
}

var errUnbound = errors.New("it has no queue pair yet")
