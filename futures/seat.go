package futures

import "github.com/verbena-rdma/verbena/internal/model"

// Seat is a place that has one operation after the other, such as an entry of a table: it keeps their cell, so that an
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
type Seat[T any] struct {
	cell *cell[T]
	gen  uint64 // of the operation that was made last
}

// NewIn is New for the next operation of seat, whose last one, if any, may still be under way: its handles stay good.
// The pool must be the same every time. It never blocks and allocates as New does.
func (p *Pool[T]) NewIn(seat *Seat[T], d Driver) (Promise[T], Future[T]) {
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
func (s *Seat[T]) Promise() Promise[T] { return Promise[T]{s.cell, s.gen} }

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
