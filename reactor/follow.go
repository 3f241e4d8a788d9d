package reactor

import "fmt"

// What a sink starts it starts where the turn is held: it needs none of the words that
// submitters share, the free list and the submission stack, each of which is a locked
// instruction for each request. So it has some slots in stock, taken many at a time, and
// a list of its own:
//
//	a sink is called ──Follow──> direct list ──┐ gather: direct before stack,
//	whoever submits ───────────> stack ────────┴─────────────> posted
//
// The order of one goroutine's requests stays as it was, whether it submits one way or
// the other: while something is on the stack, Follow puts its request there, too.
//
// The stock is for one queue at a time and lasts until the results of the turn are
// delivered. It is taken by one, two, four and so on, up to StockMost, because nobody
// knows how many are to come: so little is taken in vain where each of many queues
// starts one. Slots are in stock only of a queue of which a sink has started something:
// who is told that it is full will hear of a completion.

// StockMost bounds what is in stock.
const StockMost = 32

// Turn stands for the turn in which a sink is called. It is good until Complete returns,
// and for its goroutine alone. After that, and nil, it holds no queue (Holds), which is
// no mistake: who is told so submits as anybody does.
type Turn struct {
	r *Reactor
	// open: a sink is being called.
	open bool

	q     *Queue // the slots are of
	free  [StockMost]uint32
	slots int   // in free
	want  int   // to be taken next
	other Stock // of its user; nil: none
}

// Stock is what somebody else has taken for what sinks may start in a turn.
type Stock interface {
	// GiveBack is called, holding the turn, when all sinks were called. It must not
	// block.
	GiveBack()
}

// Holds tells whether t is the turn of q's reactor, and a sink is being called in it.
func (t *Turn) Holds(q *Queue) bool { return t != nil && t.open && t.r == q.r }

// Keep has s give back what it has at the end of the turn. There is one at a time: the
// one before is told at once. Of a turn that holds a queue.
func (t *Turn) Keep(s Stock) {
	if t.other != nil && t.other != s {
		t.other.GiveBack()
	}
	t.other = s
}

// fill takes slots of q, of which there are none in stock.
func (t *Turn) fill(q *Queue) error {
	if t.q != q {
		t.giveSlots()
		t.q, t.want = q, 1
	}
	if t.slots = q.sendFree.GetN(t.free[:t.want]); t.slots == 0 {
		if err := q.failed.get(); err != nil {
			return err
		}
		return ErrQueueFull
	}
	t.want = min(2*t.want, StockMost)
	return nil
}

func (t *Turn) giveSlots() {
	if t.slots > 0 {
		t.q.sendFree.PutN(t.free[:t.slots])
		t.slots = 0
	}
	t.q = nil
}

// over gives back what is in stock. The results are delivered.
func (t *Turn) over() {
	if t.q != nil {
		t.giveSlots()
	}
	if s := t.other; s != nil {
		t.other = nil
		s.GiveBack()
	}
}

// Follow is Transfer, as Try says, for a sink that is called in t, which holds q. It must
// have a sink itself.
func (q *Queue) Follow(t *Turn, tr *Transfer) error {
	if tr.Sink == nil {
		return fmt.Errorf("%w: what a sink starts needs a sink", ErrRequest)
	}
	k := kindOf(tr.Opcode)
	if !q.transfers(tr, k) {
		return q.noTransfer(tr, k)
	}
	if t.q != q || t.slots == 0 {
		if err := t.fill(q); err != nil {
			return err
		}
	}
	t.slots--
	i := t.free[t.slots]
	if q.failed.err.Load() != nil { // after taking, as in enter
		return q.turnAway(i)
	}
	q.fillTransfer(i, tr, k)
	d := &q.direct
	switch {
	case !q.sendStack.Empty():
		q.sendStack.Push(i)
		q.ready()
	case d.n == 0:
		d.first, d.last, d.n = i, i, 1
		q.ready()
	default: // it is on the ready list
		q.sendStack.Join(d.last, i)
		d.last = i
		d.n++
	}
	return nil
}

// chain is slots in the order they are to be posted in, linked as on the submission
// stack. The holder's.
type chain struct {
	first, last uint32
	n           int
}
