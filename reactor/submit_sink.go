package reactor

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
)

// Submitters share one word of the free list and one word of the submission stack. Each change of
// these words costs a locked instruction. A sink runs while the turn is held, so the requests of sinks
// need few of these changes: the reactor acquires several slots at a time for sinks and caches them,
// and it adds the sinks' requests directly to the backlog.
//
// The cache has slots of one queue at a time. The first refill for a queue acquires 1 slot. Each
// further refill acquires twice as many slots as the previous refill, up to MaxCachedSlots. So the
// number of unused cached slots never exceeds the number of this queue's slots that the sinks have
// used in the round.
//
// A cached slot is not free, so a submitter may have to wait for it. The wait always ends: an unused
// slot is freed when all sinks of the round have been called (see SinkContext), and a used slot is
// freed when its request completes.

// MaxCachedSlots is the largest number of cached slots.
const MaxCachedSlots = 32

// SinkContext identifies a round of sink calls. Usually a round is all calls of sinks at the end of
// one pass. Only the goroutine that calls the sink may use the SinkContext. It expires when all
// sinks of the round have been called, or when a sink calls Queue.Release, which ends the round
// early. For an expired or zero SinkContext, Queue.InSink returns false; the sink then submits with
// Transfer or Submit.
type SinkContext struct {
	r          *Reactor
	generation uint64 // the value of sinkScope.generation in this round
}

// sinkScope caches slots for the sinks that a reactor calls. Only the holder uses the fields other
// than generation.
type sinkScope struct {
	// generation is incremented at the beginning and at the end of a round. The holder
	// writes it. Any goroutine that has kept a SinkContext may read it (InSink). It publishes no other
	// data.
	generation atomic.Uint64
	current    SinkContext // the SinkContext of the current round; zero between rounds

	queue *Queue // the queue whose slots are cached; nil if no slots are cached
	free  [MaxCachedSlots]uint32
	slots int       // the cached slots are free[:slots]
	next  int       // how many slots the next refill acquires
	cache SinkCache // registered by SetSinkCache; nil if none is registered
}

// SinkCache caches resources other than slots, for the requests that sinks post in one round.
type SinkCache interface {
	// Release gives back the cached resources. The holder calls Release at the end of the round, or
	// earlier. Release must not block.
	Release()
}

// InSink reports whether t belongs to q's reactor and to the current round of sink calls.
func (q *Queue) InSink(t SinkContext) bool {
	return t.r != nil && t.r == q.r && t.generation == t.r.sinks.generation.Load()
}

// SetSinkCache registers s, to be released at the end of the round. If another SinkCache is
// registered, SetSinkCache releases the other SinkCache first. Call SetSinkCache only from a sink.
func (r *Reactor) SetSinkCache(s SinkCache) {
	h := &r.sinks
	if h.cache != nil && h.cache != s {
		h.cache.Release()
	}
	h.cache = s
}

// ReleaseSinkCaches frees the cached slots and releases the SinkCache. A sink that is about to call
// Transfer or Submit calls ReleaseSinkCaches first, because Transfer and Submit need free slots.
// Call ReleaseSinkCaches only from a sink.
func (r *Reactor) ReleaseSinkCaches() { r.sinks.release() }

// begin starts a round of sink calls.
func (h *sinkScope) begin(r *Reactor) { h.current = SinkContext{r, h.generation.Add(1)} }

// end ends the current round, if there is one.
func (h *sinkScope) end() {
	if h.current != (SinkContext{}) {
		h.current = SinkContext{}
		h.generation.Add(1)
		h.release()
	}
}

func (h *sinkScope) release() {
	if h.queue != nil {
		h.releaseSlots()
	}
	if s := h.cache; s != nil {
		h.cache = nil
		s.Release()
	}
}

// refill acquires slots of q for the cache. The cache must have no slots of q.
func (h *sinkScope) refill(q *Queue) error {
	if h.queue != q {
		h.releaseSlots()
		h.queue, h.next = q, 1
	}
	if h.slots = q.sendFree.GetN(h.free[:h.next]); h.slots == 0 {
		if err := q.failed.get(); err != nil {
			return err
		}
		return ErrQueueFull
	}
	slices.Reverse(h.free[:h.slots]) // the slot that was freed last is used first: its memory is made, and in the cache
	h.next = min(2*h.next, MaxCachedSlots)
	return nil
}

func (h *sinkScope) releaseSlots() {
	if h.slots > 0 {
		h.queue.sendFree.PutN(h.free[:h.slots])
		h.slots = 0
		if h.queue.failed.err.Load() != nil {
			h.queue.scheduleReclaim() // this pass may have called reclaimAll already
		}
	}
	h.queue = nil
}

// PostFromSink is Transfer with NonBlock, for a sink. The argument t is the SinkContext of the
// sink's call; q.InSink(t) must be true. tr.Sink must not be nil.
func (q *Queue) PostFromSink(t SinkContext, tr *Transfer) error {
	if tr.Sink == nil {
		return fmt.Errorf("%w: an operation that a sink starts needs a sink", ErrRequest)
	}
	k := kindOf(tr.Opcode)
	if !q.isTransfer(tr, k) {
		return q.whyNoTransfer(tr, k)
	}
	h := &t.r.sinks
	if h.queue != q || h.slots == 0 {
		if err := h.refill(q); err != nil {
			return err
		}
	}
	h.slots--
	i := h.free[h.slots]
	ch, err := q.tab.make(i)
	if err != nil { // look for a free slot that was made
		h.slots++
		h.releaseSlots()
		if i, ch, err = q.acquireSlot(context.Background(), NonBlock); err != nil {
			return err
		}
	}
	if q.failed.err.Load() != nil { // loaded after the slot was acquired, as in Queue.acquireSlot
		return q.rejectFailed(q.sendFree, i)
	}
	q.fillTransfer(i, ch, tr, k)
	if q.backlog.n > 0 && q.sendStack.Empty() {
		q.join(i, i, 1) // as q.add does, without the call
	} else if q.add(i) {
		q.ready()
	}
	return nil
}
