package reactor

import (
	"fmt"
	"sync/atomic"
)

// A sink runs while the turn is held, so the requests that it posts need none of the words that
// submitters share (free list, submission stack), each of which costs a locked instruction for
// each request. The reactor caches slots for sinks, acquires many at a time, and adds the
// requests directly to the backlog.
//
// The cache serves one queue at a time, until the results of the pass are delivered. It doubles
// from 1 up to MaxCachedSlots, so that few slots are acquired in vain if each of many queues
// posts one request. Slots are cached only of a queue to which a sink has posted: a submitter
// that finds that queue full can rely on a completion.

// MaxCachedSlots is the largest number of cached slots.
const MaxCachedSlots = 32

// SinkContext identifies the round of sink calls in which a sink runs. It is for that goroutine,
// and valid until the results of the pass are delivered; a Release in between delivers them
// early. Using an expired or zero SinkContext is not an error: Queue.InSink reports false, and
// the sink then submits with Transfer or Submit.
type SinkContext struct {
	r          *Reactor
	generation uint64 // sinkScope.generation when it was made
}

// sinkScope caches slots for the sinks that a reactor calls. Only the holder uses it, except
// for generation.
type sinkScope struct {
	// generation is incremented before sinks are called, and after all were called. Written by
	// the holder; read by any goroutine with an old SinkContext; publishes nothing.
	generation atomic.Uint64
	current    SinkContext // of the sinks that are being called; zero: none

	queue *Queue // the owner of the cached slots
	free  [MaxCachedSlots]uint32
	slots int       // how many are in free
	next  int       // how many refill acquires next
	cache SinkCache // of the reactor's user; nil: none
}

// SinkCache caches other resources for the requests that sinks post in one pass.
type SinkCache interface {
	// Release is called by the holder when all sinks were called, or before that. It must not
	// block.
	Release()
}

// InSink reports whether t is of q's reactor and its sinks are still being called.
func (q *Queue) InSink(t SinkContext) bool {
	return t.r != nil && t.r == q.r && t.generation == t.r.sinks.generation.Load()
}

// SetSinkCache registers s to be released at the end of the pass. There is one cache at a time:
// the previous one is released at once. Call it only while sinks are called.
func (r *Reactor) SetSinkCache(s SinkCache) {
	h := &r.sinks
	if h.cache != nil && h.cache != s {
		h.cache.Release()
	}
	h.cache = s
}

// ReleaseSinkCaches frees the cached slots and releases the SinkCache: for a sink that goes on
// to submit with Transfer or Submit. Call it only while sinks are called.
func (r *Reactor) ReleaseSinkCaches() { r.sinks.release() }

// begin starts a round of sink calls.
func (h *sinkScope) begin(r *Reactor) { h.current = SinkContext{r, h.generation.Add(1)} }

// end frees the cached slots, after all sinks were called.
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

// refill acquires slots of q, which has none cached.
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
			h.queue.scheduleReclaim() // this pass has reclaimed quarantined queues already
		}
	}
	h.queue = nil
}

// PostFromSink is Transfer with NonBlock for a sink that was called with t, for which q.InSink
// is true. tr.Sink must be set.
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
	if q.failed.err.Load() != nil { // after acquiring, as in acquireSlot
		return q.rejectFailed(q.sendFree, i)
	}
	q.fillTransfer(i, tr, k)
	if q.backlog.n > 0 && q.sendStack.Empty() {
		q.join(i, i, 1) // add without the call
	} else if q.add(i) {
		q.ready()
	}
	return nil
}
