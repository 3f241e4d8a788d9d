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
// delivered. It is taken by one, two, four and so on, up to StockMost, because nobody
// knows how many are to come: so little is taken in vain where each of many queues
// starts one. Slots are in stock only of a queue of which a sink has started something:
// who is told that it is full will hear of a completion.

// StockMost bounds what is in stock.
const StockMost = 32

// Turn stands for the turn in which a sink is called. It is for that goroutine, and good
// until the results of the turn are delivered. After that, and its zero value, it is no turn
// of any queue (Queue.Calling), which is no mistake: who is told so submits as anybody does. (So is
// who has had results delivered in between, by Release.)
type Turn struct {
	r *Reactor
	n uint64 // of here.number
}

// here is what a reactor has in stock for the sinks that it calls. The holder's, but for
// number.
type here struct {
	// number moves on when sinks are going to be called, and when all were. Written by
	// the holder; read by whoever asks an old Turn; publishes nothing.
	number atomic.Uint64
	turn   Turn // of the sinks that are being called; zero: none is

	q     *Queue // the slots are of
	free  [StockMost]uint32
	slots int   // in free
	want  int   // to be taken next
	other Stock // of the reactor's user; nil: none
}

// Stock is what somebody else has taken for what sinks may start in a turn.
type Stock interface {
	// GiveBack is called, holding the turn, when all sinks were called, or before
	// that. It must not block.
	GiveBack()
}

// Calling reports whether t is a turn of q's reactor in which sinks are being called.
func (q *Queue) Calling(t Turn) bool {
	return t.r != nil && t.r == q.r && t.n == t.r.here.number.Load()
}

// KeepStock has s give back what it has at the end of the turn. There is one at a time: the
// one before is told at once. In a turn in which sinks are called.
func (r *Reactor) KeepStock(s Stock) {
	h := &r.here
	if h.other != nil && h.other != s {
		h.other.GiveBack()
	}
	h.other = s
}

// GiveBackStock gives back what is in stock: for a sink that goes on to submit as anybody
// does. In a turn in which sinks are called.
func (r *Reactor) GiveBackStock() { r.here.giveBack() }

// open begins to call sinks.
func (h *here) open(r *Reactor) { h.turn = Turn{r, h.number.Add(1)} }

// shut gives back what is in stock. All sinks were called.
func (h *here) shut() {
	if h.turn != (Turn{}) {
		h.turn = Turn{}
		h.number.Add(1)
		h.giveBack()
	}
}

func (h *here) giveBack() {
	if h.q != nil {
		h.giveSlots()
	}
	if s := h.other; s != nil {
		h.other = nil
		s.GiveBack()
	}
}

// fill takes slots of q, of which there are none in stock.
func (h *here) fill(q *Queue) error {
	if h.q != q {
		h.giveSlots()
		h.q, h.want = q, 1
	}
	if h.slots = q.sendFree.GetN(h.free[:h.want]); h.slots == 0 {
		if err := q.failed.get(); err != nil {
			return err
		}
		return ErrQueueFull
	}
	h.want = min(2*h.want, StockMost)
	return nil
}

func (h *here) giveSlots() {
	if h.slots > 0 {
		h.q.sendFree.PutN(h.free[:h.slots])
		h.slots = 0
		if h.q.failed.err.Load() != nil {
			h.q.slotHome() // this turn has looked at the released queues already
		}
	}
	h.q = nil
}

// Follow is Transfer, as Try says, for a sink that is called in t, a turn of q. It must
// have a sink itself.
func (q *Queue) Follow(t Turn, tr *Transfer) error {
	if tr.Sink == nil {
		return fmt.Errorf("%w: what a sink starts needs a sink", ErrRequest)
	}
	k := kindOf(tr.Opcode)
	if !q.transfers(tr, k) {
		return q.noTransfer(tr, k)
	}
	h := &t.r.here
	if h.q != q || h.slots == 0 {
		if err := h.fill(q); err != nil {
			return err
		}
	}
	h.slots--
	i := h.free[h.slots]
	if q.failed.err.Load() != nil { // after taking, as in enter
		return q.turnAway(q.sendFree, i)
	}
	q.fillTransfer(i, tr, k)
	if q.backlog.n > 0 && q.sendStack.Empty() {
		q.join(i, i, 1) // as add, but for the call
	} else if q.add(i) {
		q.ready()
	}
	return nil
}
