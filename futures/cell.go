package futures

import "github.com/verbena-rdma/verbena/internal/model"

// The word of a cell: one generation of it is one operation.
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
// Consuming is the one CAS that moves the word to the next generation with no flag of the above set. From then on no handle
// of the old generation is accepted and none of the new one exists, so the goroutine whose CAS it was owns the whole cell
// until it puts it back: into the pool, or, by clearing BUSY, into the seat that the cell is kept in. That is why an old
// handle can never meet another operation's result.
//
// Who sets and clears which flag, and what it publishes:
//
//	SETTLING   set by Settle: its goroutine alone writes value and err.
//	WRITTEN    set by Settle while LINK is set: value and err are in; whoever holds LINK publishes in its place.
//	           (So a settler never waits for a goroutine that was descheduled while attaching.)
//	SETTLED    set by Settle, or by the holder of LINK after WRITTEN: publishes value and err. Never with LINK.
//	LINK       set by Done, Then or Group Add, before SETTLED only: its holder alone writes done, then, direct or group.
//	           A second attacher of the same future waits for the first; nobody else does.
//	AWAITED    set and cleared by Await: an awaiter has the only right to consume. A settled result is his for sure.
//	DRIVEN     set with AWAITED, cleared when Drive returned or there is no driver: Offer is possible.
//	PARKED     set by Announce or Park; cleared by exactly one of settle, Offer, Retract, or Park after its context ended.
//	DONE       set by Done: publishes the channel. DONE, THEN and GROUPED stay till the generation ends, and the field
//	THEN       set by Then: publishes the callback.   that a flag publishes is not written again before that.
//	GROUPED    set by Group Add: publishes the group.
//	DISCARDED  set by Discard before SETTLED: the result goes to Dispose.
//
// SEATED   set while the cell is a Seat's: kept there from operation to operation instead of in the pool. Set by NewIn for
//
//	         a cell that nobody else knows; cleared by NewIn, at any time, when the seat takes another.
//	BUSY     set with the consuming CAS of a SEATED cell, cleared by the consumer when it has read the result: NewIn may
//	         use the cell again.
//
// In a Group's word only SETTLED, AWAITED, DRIVEN and PARKED are used; its generation is the number of the Wait.
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
	bitSeated
	bitBusy

	genShift = 16 // 48 bits of generation: at a million reuses of one cell per second they last nine years
	flagMask = 1<<genShift - 1

	// attended are the flags with which settling has more to do than to set SETTLED.
	attended = bitParked | bitDone | bitThen | bitGrouped | bitDiscarded
)

// generationOf returns w without its flags: what a handle carries.
func generationOf(w uint64) uint64 { return w &^ flagMask }

// nextGeneration returns the word of a fresh cell after the operation in w has been consumed.
func nextGeneration(w uint64) uint64 { return generationOf(w) + 1<<genShift }

// consumed returns the word with which the operation in w is consumed.
func consumed(w uint64) uint64 {
	next := nextGeneration(w)
	if w&bitSeated != 0 {
		next |= bitSeated | bitBusy
	}
	return next
}

// refuse says why a handle of generation gen may not use a cell whose word is w; nil when it may.
func refuse(w, gen uint64) error {
	switch {
	case generationOf(w) != gen, w&bitThen != 0:
		return ErrConsumed
	case w&bitDiscarded != 0:
		return ErrDiscarded
	}
	return nil
}

// cell is the shared state of one promise and its future. The word (in Waiter) says who may touch which field. A cell belongs to one pool, or to none, for life.
type cell[T any] struct {
	Waiter
	pool   *Pool[T] // nil: never reused
	driver Driver   // written by New, read by holders of AWAITED or LINK

	value T
	err   error

	group  *Group
	done   chan struct{}
	then   func(T, error)
	direct bool // then is the package's own and runs at once on the settling goroutine, whatever the executor
}

// lightly tells whether a settled cell may be read before the CAS that consumes it, and is free with that: one CAS instead
// of two. It must be seated, and nothing but the result be in it. Until the CAS nobody writes the result, unless another
// goroutine consumes the same future at the same time; then what was read may be parts of two results, our CAS fails, and
// it is thrown away. The race detector would report that, so its builds take the long way.
func lightly(w uint64) bool {
	return !careful && w&(bitSeated|bitDone|bitThen|bitGrouped) == bitSeated
}

// claim consumes the operation of a settled word w, which may have changed; ok says that it had not, and only then are v
// and err the result.
func (c *cell[T]) claim(w uint64) (v T, err error, ok bool) {
	if lightly(w) {
		v, err = c.value, c.err
		return v, err, c.cas(w, nextGeneration(w)|bitSeated)
	}
	if c.cas(w, consumed(w)) {
		v, err = c.take(w)
		return v, err, true
	}
	return v, err, false
}

// take moves the result out and gives the cell back. The caller has just moved the word from w to consumed(w).
func (c *cell[T]) take(w uint64) (v T, err error) {
	v, err = c.value, c.err
	if w&bitSeated == 0 {
		var none T
		c.value, c.err = none, nil
	}
	if w&(bitDone|bitThen|bitGrouped) != 0 {
		c.group, c.done, c.then = nil, nil, nil
	}
	if w&bitSeated != 0 {
		next := consumed(w)
		if c.cas(next, next&^bitBusy) {
			return v, err
		}
		c.word.Store(nextGeneration(w)) // the seat has another one meanwhile
	}
	c.pool.put(c)
	return v, err
}

// link takes LINK for an attacher of generation gen. settled: the future is settled already and LINK was not taken.
// It waits only for another attacher of the same future.
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

// unlink gives LINK back and sets the flags in set, unless one of veto was set meanwhile: then it reports false, and the
// field written under LINK is without meaning. If the promise was settled meanwhile, the caller publishes it.
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

// CellSlot is a place that has one operation after the other, such as an entry of a table: it keeps their cell, so that an
// operation whose predecessor's result was taken costs neither a look into the pool nor an allocation. The zero Seat is
// ready for use. It must not be copied, and belongs to one goroutine at a time. It keeps the last result until the next one
// is there.
//
//	          NewIn: from the pool                     NewIn: the same again
//	EMPTY ----------------------------> SEATED, in use <---------------------- SEATED, free
//	                                     |   |                                      ^
//	                                     |   |  the result is taken: BUSY, then     |
//	                                     |   +--------------------------------------+
//	                                     v  NewIn before that: SEATED is cleared
//	                     the cell goes to the pool when its result is taken
type CellSlot[T any] struct {
	cell *cell[T]
	gen  uint64 // of the operation that was made last
}

// NewIn is New for the next operation of seat, whose last one, if any, may still be under way: its handles stay good.
// The pool must be the same every time. It never blocks and allocates as New does.
func (p *Pool[T]) NewIn(seat *CellSlot[T], d Driver) (Promise[T], Future[T]) {
	c := seat.cell
	if c == nil || !c.vacant(seat.gen) {
		c = p.fresh()
		model.Yield("seat")
		c.word.Store(generationOf(c.word.Load()) | bitSeated) // nobody else has it
		seat.cell = c
	}
	c.driver = d
	gen := generationOf(c.word.Load())
	seat.gen = gen
	return Promise[T]{c, gen}, Future[T]{c, gen}
}

// Promise is that of the operation NewIn made last. The zero Promise before that.
func (s *CellSlot[T]) Promise() Promise[T] { return Promise[T]{s.cell, s.gen} }

// vacant tells whether the operation of generation last is over. If it is not, the cell is the seat's no more: it goes to
// the pool when it is.
func (c *cell[T]) vacant(last uint64) bool {
	for {
		w := c.load()
		if w&flagMask == bitSeated && generationOf(w) != last {
			return true
		}
		if c.cas(w, w&^bitSeated) {
			return false
		}
	}
}
