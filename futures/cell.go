package futures

import "github.com/verbena-rdma/verbena/internal/model"

// The word of a cell. Each operation of the cell has its own generation. SETTLING is the flag
// bitSettling, and so on.
//
//	63                                  16 15                    0
//	+-------------------------------------+-----------------------+
//	|             generation              |         flags         |
//	+-------------------------------------+-----------------------+
//
//	          Settle claims          Settle publishes
//	PENDING ----------------> SETTLING ----------------> SETTLED
//	   ^                       |    ^ \                     |
//	   |                       |    |  \ LINK is set        | Await, Poll, Then,
//	   |                       |    |   v                   | Discard: one CAS
//	   |                       |    |  WRITTEN -- unlink -->|
//	   |                       |  flags below               |
//	   |                       |  may come and go           |
//	   |                       | THEN, or DISCARDED         |
//	   |                       v without AWAITED            v
//	   +---------------- the next generation <--------------+
//
// Consuming is one CAS that moves the word to the next generation. It clears all flags, except that
// a cell with INSLOT keeps INSLOT and gets READING. From then on no handle of the old generation is
// accepted, and no handle of the new one exists. So the goroutine that did the CAS owns the whole
// cell until it puts the cell back: into the pool, or, by clearing READING, into the CellSlot that
// keeps the cell. Therefore an old handle never gets another operation's result. (The function
// lightly describes a shorter way.)
//
// Which goroutine sets and clears each flag, and what the flag publishes:
//
//	SETTLING   set by Settle: only its goroutine writes value and err.
//	WRITTEN    set by Settle while LINK is set: value and err are written, and the holder of LINK
//	           publishes them. So a settler never waits for a descheduled holder of LINK.
//	SETTLED    set by Settle, or by the holder of LINK after WRITTEN: publishes value and err.
//	           Never set together with LINK.
//	LINK       set by Done, Then or Group Add, before SETTLED only: only its holder writes done,
//	           then, direct or group. Only a second attacher of the same future waits for it.
//	AWAITED    set and cleared by Await: only the goroutine in Await may consume, so it cannot lose
//	           a settled result to another goroutine.
//	DRIVEN     set with AWAITED; cleared when PARKED is set, if Drive has returned or there is no
//	           driver. Offer succeeds only while it is set.
//	PARKED     set by Announce or Park; cleared by exactly one of settle, Offer, Retract, or Park
//	           after the channel given to it was closed.
//	DONE       set by Done: publishes the channel. DONE, THEN and GROUPED stay until the generation
//	           ends, and until then the field that each of them publishes is not written again.
//	THEN       set by Then: publishes the callback.
//	GROUPED    set by Group Add: publishes the group.
//	DISCARDED  set by Discard before SETTLED: the result goes to Dispose.
//	INSLOT     set while a CellSlot, and not the pool, keeps the cell for its next operation. Set
//	           by NewIn for a cell that no other goroutine knows; cleared by NewIn, in any state of
//	           the word, when the slot takes another cell.
//	READING    set by the CAS that consumes a cell with INSLOT; cleared by the consumer after it
//	           has read the result. From then on NewIn may use the cell again.
//
// A Group's word uses only SETTLED, AWAITED, DRIVEN and PARKED; its generation counts the Waits.
const (
	bitSettling uint64 = 1 << iota
	bitWritten
	bitSettled
	bitLink
	bitAwaited
	bitDriven
	bitParked
	bitDone
	bitThen
	bitGrouped
	bitDiscarded
	bitInSlot
	bitReading

	genShift = 16 // 48 bits of generation: at a million reuses of one cell per second they last nine years
	flagMask = 1<<genShift - 1

	// attended are the flags that give a settler more to do than to set SETTLED.
	attended = bitParked | bitDone | bitThen | bitGrouped | bitDiscarded
)

// generationOf returns w without its flags: the generation as handles carry it.
func generationOf(w uint64) uint64 { return w &^ flagMask }

// nextGeneration returns the word of a fresh cell after the operation in w has been consumed.
func nextGeneration(w uint64) uint64 { return generationOf(w) + 1<<genShift }

// consumed returns the word that consumes the operation in w.
func consumed(w uint64) uint64 {
	next := nextGeneration(w)
	if w&bitInSlot != 0 {
		next |= bitInSlot | bitReading
	}
	return next
}

// refuse returns the misuse error for a handle of generation gen on a cell whose word is w, or nil
// if the handle may use the cell.
func refuse(w, gen uint64) error {
	switch {
	case generationOf(w) != gen, w&bitThen != 0:
		return ErrConsumed
	case w&bitDiscarded != 0:
		return ErrDiscarded
	}
	return nil
}

// cell is the shared state of one promise and its future. Its word (in Waiter) decides which
// goroutine may touch which field. A cell belongs to one pool, or to none, for life.
type cell[T any] struct {
	Waiter
	pool   *Pool[T] // nil: never reused
	driver Driver   // written before handles are given away, read by holders of AWAITED or LINK

	value T
	err   error

	group  *Group
	done   chan struct{}
	then   func(T, error)
	direct bool // the callback then is internal and runs on the settling goroutine
}

// lightly reports whether the result of a settled cell may be read before the CAS that consumes it.
// That CAS then also frees the cell: one CAS instead of two. The cell must have INSLOT and hold
// nothing but the result. If another goroutine consumes the same future at the same time, the next
// operation may write the cell during the read. The read then mixes two results, but the CAS fails
// and the read is thrown away. The race detector would report this read, so race builds do not read
// early.
func lightly(w uint64) bool {
	return !careful && w&(bitInSlot|bitDone|bitThen|bitGrouped) == bitInSlot
}

// claim consumes the operation of a settled word w. If the word has changed, ok is false, and v and
// err mean nothing.
func (c *cell[T]) claim(w uint64) (v T, err error, ok bool) {
	if lightly(w) {
		v, err = c.value, c.err
		return v, err, c.cas(w, nextGeneration(w)|bitInSlot)
	}
	if c.cas(w, consumed(w)) {
		v, err = c.take(w)
		return v, err, true
	}
	return v, err, false
}

// take returns the result and gives the cell back. The caller has just moved the word from w to
// consumed(w).
func (c *cell[T]) take(w uint64) (v T, err error) {
	v, err = c.value, c.err
	if w&bitInSlot == 0 {
		var none T
		c.value, c.err = none, nil
	}
	if w&(bitDone|bitThen|bitGrouped) != 0 {
		c.group, c.done, c.then = nil, nil, nil
	}
	if w&bitInSlot != 0 {
		next := consumed(w)
		if c.cas(next, next&^bitReading) {
			return v, err
		}
		c.word.Store(nextGeneration(w)) // the slot has another cell by now
	}
	c.pool.put(c)
	return v, err
}

// link takes LINK for a handle of generation gen. If settled is true, the future was settled
// already and link did not take LINK. If a flag of veto is set, the error is ErrAwaited. It waits
// only for another holder of LINK.
func (c *cell[T]) link(gen, veto uint64) (settled bool, err error) {
	for {
		w := c.load()
		if err := refuse(w, gen); err != nil {
			return false, err
		}
		switch {
		case w&veto != 0:
			return false, ErrAwaited
		case w&bitSettled != 0:
			return true, nil
		case w&bitLink != 0:
			model.Pause("link", func() bool { return c.word.Load() != w })
		case c.cas(w, w|bitLink):
			return false, nil
		}
	}
}

// unlink gives LINK back and sets the flags in set. If a flag of veto was set meanwhile, unlink
// does not set them and returns false; the field written under LINK is then ignored. If a settler
// has set WRITTEN meanwhile, unlink publishes the result.
func (c *cell[T]) unlink(set, veto uint64) bool {
	for {
		w := c.load()
		n, ok := w&^bitLink, w&veto == 0
		if ok {
			n |= set
		}
		if w&bitWritten != 0 {
			if c.publish(w, n) {
				return ok
			}
		} else if c.cas(w, n) {
			return ok
		}
	}
}

// CellSlot keeps one cell for successive operations, such as those of a table entry. If the result
// of the last operation was taken, the next operation needs neither the pool nor an allocation. The
// zero CellSlot is ready for use. A CellSlot must not be copied, and belongs to one goroutine at a
// time. Its cell keeps the last result alive until the next result is stored.
//
//	          NewIn: from the pool                     NewIn: the same cell
//	EMPTY ----------------------------> INSLOT, in use <---------------------- INSLOT, free
//	                                     |   |                                      ^
//	                                     |   |  the result is taken: READING, then  |
//	                                     |   +--------------------------------------+
//	                                     v  NewIn before that: INSLOT is cleared
//	                     the cell goes to the pool when its result is taken
type CellSlot[T any] struct {
	cell *cell[T]
	gen  uint64 // of the operation that was made last
}

// NewIn returns the two ends of the next operation of seat. The last operation, if any, may still
// be unsettled: its handles stay valid. All calls for one CellSlot must use the same pool.
// Otherwise NewIn is like New.
func (p *Pool[T]) NewIn(seat *CellSlot[T], d Driver) (Promise[T], Future[T]) {
	c := seat.cell
	if c == nil || !c.vacant(seat.gen) {
		c = p.fresh()
		model.Yield("seat")
		c.word.Store(generationOf(c.word.Load()) | bitInSlot) // no other goroutine has it
		seat.cell = c
	}
	c.driver = d
	gen := generationOf(c.word.Load())
	seat.gen = gen
	return Promise[T]{c, gen}, Future[T]{c, gen}
}

// Promise returns the promise of the last operation that NewIn made, or the zero Promise if there
// is none.
func (s *CellSlot[T]) Promise() Promise[T] { return Promise[T]{s.cell, s.gen} }

// vacant reports whether the result of generation last was taken. If it was not, vacant clears
// INSLOT, and the cell goes to the pool when its result is taken.
func (c *cell[T]) vacant(last uint64) bool {
	for {
		w := c.load()
		if w&flagMask == bitInSlot && generationOf(w) != last {
			return true
		}
		if c.cas(w, w&^bitInSlot) {
			return false
		}
	}
}
