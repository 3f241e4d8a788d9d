package reactor

import (
	"fmt"
	"sync/atomic"
)

// A submitter pays a locked instruction for each word that submitters share (in the free list and
// the submission stack). A sink runs while the turn is held, so its requests can avoid these words.
// The reactor acquires slots for sinks several at a time and caches them, and it adds the sinks'
// requests directly to the backlog.
//
// The cache has slots of one queue at a time, until the results of the pass are delivered. For a
// new queue it begins with 1 slot; each refill acquires twice as many as the last, up to
// MaxCachedSlots. So fewer slots lie unused in the cache than sinks have used. Cached slots are not
// free, and a submitter may have to wait for them. Such a submitter is always woken: the queue has
// at least one request of a sink, whose completion frees a slot.

// MaxCachedSlots is the largest number of cached slots.
const MaxCachedSlots = 32

// SinkContext identifies the round of sink calls, usually those at the end of one pass, in which a
// sink runs. Only the goroutine that calls the sink may use it. It expires when all sinks of the
// round have been called. A sink that calls Queue.Release ends the round early. Queue.InSink
// reports false for an expired or zero SinkContext; the sink then submits with Transfer or Submit.
type SinkContext struct {
	r          *Reactor
	generation uint64 // sinkScope.generation of the round
}

// sinkScope caches slots for the sinks that a reactor calls. Only the holder uses the fields,
// except generation.
type sinkScope struct {
	// generation is incremented before the sinks of a round are called, and after all of them have
	// been called. Written by the holder; read by any goroutine with an old SinkContext; publishes
	// nothing.
	generation atomic.Uint64
	current    SinkContext // the context of the present round; zero: no round

	queue *Queue // the owner of the cached slots
	free  [MaxCachedSlots]uint32
	slots int       // how many are in free
	next  int       // how many slots the next refill acquires
	cache SinkCache // of the reactor's user; nil: none
}

// SinkCache caches other resources for the requests that sinks post in one pass.
type SinkCache interface {
	// Release gives back the cached resources. The holder calls it after all sinks of the round
	// have been called, or earlier. It must not block.
	Release()
}

// InSink reports whether t belongs to q's reactor and to the present round of sink calls.
func (q *Queue) InSink(t SinkContext) bool {
	return t.r != nil && t.r == q.r && t.generation == t.r.sinks.generation.Load()
}

// SetSinkCache registers s to be released after all sinks of the round have been called. Only one
// SinkCache is registered at a time: SetSinkCache releases the previous one at once. Call it only
// from a sink.
func (r *Reactor) SetSinkCache(s SinkCache) {
	h := &r.sinks
	if h.cache != nil && h.cache != s {
		h.cache.Release()
	}
	h.cache = s
}

// ReleaseSinkCaches frees the cached slots and releases the SinkCache. A sink calls it before it
// submits with Transfer or Submit, which need free slots. Call it only from a sink.
func (r *Reactor) ReleaseSinkCaches() { r.sinks.release() }

// begin starts a round of sink calls.
func (h *sinkScope) begin(r *Reactor) { h.current = SinkContext{r, h.generation.Add(1)} }

// end ends a round.
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

// refill acquires slots of q for the cache, which has no slot of q left.
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

// PostFromSink is Transfer with NonBlock for a sink. t is the SinkContext that the sink was called
// with, and q.InSink(t) must be true. tr.Sink must be set.
func (q *Queue) PostFromSink(t SinkContext, tr *Transfer) error {
	if tr.Sink == nil {
		return fmt.Errorf("%w: what a sink starts needs a sink", ErrRequest)
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
	if q.failed.err.Load() != nil { // loaded after the slot was acquired, as in acquireSlot
		return q.rejectFailed(q.sendFree, i)
	}
	q.fillTransfer(i, tr, k)
	if q.backlog.n > 0 && q.sendStack.Empty() {
		q.join(i, i, 1) // as q.add does, without the call
	} else if q.add(i) {
		q.ready()
	}
	return nil
}
