package reactor

import (
	"fmt"
	"sync/atomic"
)

// What a sink starts it starts where the turn is held: it needs none of the words that
// submitters share, the free list and the submission stack, each of which is a locked
// instruction for each request. So it has some slots in stock, taken many at a time, and
// adds them to the backlog.
//
// The stock is for one queue at a time and lasts until the results of the turn are
// delivered. It is taken by one, two, four and so on, up to MaxCachedSlots, because nobody
// knows how many are to come: so little is taken in vain where each of many queues
// starts one. Slots are in stock only of a queue of which a sink has started something:
// who is told that it is full will hear of a completion.

// MaxCachedSlots bounds what is in stock.
const MaxCachedSlots = 32

// SinkContext stands for the turn in which a sink is called. It is for that goroutine, and good
// until the results of the turn are delivered. After that, and its zero value, it is no turn
// of any queue (Queue.InSink), which is no mistake: who is told so submits as anybody does. (So is
// who has had results delivered in between, by Release.)
type SinkContext struct {
	r          *Reactor
	generation uint64 // of here.generation
}

// sinkScope is what a reactor has in stock for the sinks that it calls. The holder's, but for
// number.
type sinkScope struct {
	// generation moves on when sinks are going to be called, and when all were. Written by
	// the holder; read by whoever asks an old Turn; publishes nothing.
	generation atomic.Uint64
	current    SinkContext // of the sinks that are being called; zero: none is

	queue *Queue // the slots are of
	free  [MaxCachedSlots]uint32
	slots int       // in free
	next  int       // to be taken next
	cache SinkCache // of the reactor's user; nil: none
}

// SinkCache is what somebody else has taken for what sinks may start in a turn.
type SinkCache interface {
	// Release is called, holding the turn, when all sinks were called, or before
	// that. It must not block.
	Release()
}

// InSink reports whether t is a turn of q's reactor in which sinks are being called.
func (q *Queue) InSink(t SinkContext) bool {
	return t.r != nil && t.r == q.r && t.generation == t.r.sinks.generation.Load()
}

// SetSinkCache has s give back what it has at the end of the turn. There is one at a time: the
// one before is told at once. In a turn in which sinks are called.
func (r *Reactor) SetSinkCache(s SinkCache) {
	h := &r.sinks
	if h.cache != nil && h.cache != s {
		h.cache.Release()
	}
	h.cache = s
}

// ReleaseSinkCaches gives back what is in stock: for a sink that goes on to submit as anybody
// does. In a turn in which sinks are called.
func (r *Reactor) ReleaseSinkCaches() { r.sinks.release() }

// begin begins to call sinks.
func (h *sinkScope) begin(r *Reactor) { h.current = SinkContext{r, h.generation.Add(1)} }

// end gives back what is in stock. All sinks were called.
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

// refill takes slots of q, of which there are none in stock.
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
			h.queue.scheduleReclaim() // this turn has looked at the released queues already
		}
	}
	h.queue = nil
}

// PostFromSink is Transfer, as Try says, for a sink that is called in t, a turn of q. It must
// have a sink itself.
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
	if q.failed.err.Load() != nil { // after taking, as in enter
		return q.rejectFailed(q.sendFree, i)
	}
	q.fillTransfer(i, tr, k)
	if q.backlog.n > 0 && q.sendStack.Empty() {
		q.join(i, i, 1) // as add, but for the call
	} else if q.add(i) {
		q.ready()
	}
	return nil
}
