package futures

import "context"

// Future is the end of an operation from which the result is taken, once. It is a value and may be
// copied; all copies are the same future. The zero Future is not valid. Every method may be called
// from any goroutine.
type Future[T any] struct {
	cell *cell[T]
	gen  uint64
}

// pool returns the pool of the future's cell, or nil. A cell's pool never changes, so pool may be
// called on an old handle, too.
func (f Future[T]) pool() *Pool[T] {
	if f.cell == nil {
		return nil
	}
	return f.cell.pool
}

// Await blocks until the operation is settled, and takes its result. While it waits, the
// operation's driver, if any, may do its work on this goroutine.
//
// If ctx ends first, Await returns ctx.Err(); if the driver returns an error, Await returns that.
// In both cases it consumes nothing: the future can be awaited, polled or discarded later. If the
// operation is settled, Await returns the result even if ctx has ended. If another goroutine is in
// Await, the error is ErrAwaited. Other misuse: ErrInvalid, ErrConsumed, ErrDiscarded,
// ErrNilContext. Await allocates nothing in steady state (the first park in a cell's life makes a
// channel).
//
// Await calls ctx.Done at most once, before it waits, and ctx.Err only after the wait. If the
// driver runs code that panics or ends the goroutine during the wait, the future is discarded.
func (f Future[T]) Await(ctx context.Context) (v T, err error) {
	c := f.cell
	if c == nil {
		return v, ErrInvalid
	}
	if ctx == nil {
		return v, ErrNilContext
	}
	var done <-chan struct{}
	asked := false
	for {
		w := c.load()
		if err := refuse(w, f.gen); err != nil {
			return v, err
		}
		if w&bitAwaited != 0 {
			return v, ErrAwaited
		}
		if w&bitSettled != 0 {
			if lightly(w) { // as in claim, without one more copy of the result
				if v, err = c.value, c.err; c.cas(w, nextGeneration(w)|bitInSlot) {
					return v, err
				}
				var none T
				v = none
			} else if c.cas(w, consumed(w)) {
				return c.take(w)
			}
			continue
		}
		if !asked { // before AWAITED: Done may be user code, which may not return
			done, asked = ctx.Done(), true
			continue
		}
		if c.cas(w, w|bitAwaited|bitDriven) {
			break
		}
	}
	// This goroutine holds AWAITED: the cell keeps its operation, and driver may be read.
	werr := c.await(done)
	for {
		w := c.load()
		if w&bitSettled != 0 { // only this goroutine can consume the operation now
			if v, err, ok := c.claim(w); ok {
				return v, err
			}
		} else if c.cas(w, w&^(bitAwaited|bitDriven)) {
			if werr == nil {
				werr = whyEnded(ctx)
			}
			return v, werr
		}
	}
}

// await calls wait for the goroutine that set AWAITED. If wait panics or ends the goroutine, await
// discards the future.
func (c *cell[T]) await(done <-chan struct{}) error {
	returned := false
	defer func() {
		if !returned {
			c.discardAwaited()
		}
	}()
	err := c.wait(done, c.driver)
	returned = true
	return err
}

// discardAwaited gives AWAITED back and discards the future.
func (c *cell[T]) discardAwaited() {
	for {
		w := c.load()
		if w&bitSettled == 0 {
			if c.cas(w, w&^(bitAwaited|bitDriven)|bitDiscarded) {
				return
			}
		} else if v, err, ok := c.claim(w); ok {
			c.pool.dispose(v, err)
			return
		}
	}
}

// Poll takes the result if the operation is settled: ok is true and the handle is consumed. If the
// operation is not settled, ok is false and err is nil. If the handle has no result any more, ok is
// true, so that a polling loop ends, and err is ErrInvalid, ErrConsumed or ErrDiscarded. While a
// goroutine is in Await, ok is false and err is ErrAwaited. Poll never blocks and allocates
// nothing.
func (f Future[T]) Poll() (v T, err error, ok bool) {
	c := f.cell
	if c == nil {
		return v, ErrInvalid, true
	}
	for {
		w := c.load()
		if err := refuse(w, f.gen); err != nil {
			return v, err, true
		}
		if w&bitAwaited != 0 {
			return v, ErrAwaited, false
		}
		if w&bitSettled == 0 {
			return v, nil, false
		}
		if v, err, ok := c.claim(w); ok {
			return v, err, true
		}
	}
}

// Settled reports whether there is nothing to wait for: the operation is settled, or the handle has
// no result any more. It consumes nothing, never blocks and allocates nothing.
func (f Future[T]) Settled() bool {
	if f.cell == nil {
		return true
	}
	w := f.cell.load()
	return w&bitSettled != 0 || refuse(w, f.gen) != nil
}

// Valid reports whether the result can still be taken: it was neither taken nor discarded. It never
// blocks and allocates nothing.
func (f Future[T]) Valid() bool {
	return f.cell != nil && refuse(f.cell.load(), f.gen) == nil
}

// closed is the closed channel that Done returns if there is nothing to wait for.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done returns a channel that is closed when the operation is settled. It consumes nothing: take
// the result with Poll or Await. If the handle has no result any more, Done returns a closed
// channel. Done waits only while another goroutine is inside Done, Then, Map, All, Any or Add on
// the same future. The first call on an unsettled future allocates the channel.
func (f Future[T]) Done() <-chan struct{} {
	c := f.cell
	if c == nil {
		return closed
	}
	if settled, err := c.link(f.gen, 0); settled || err != nil {
		return closed
	}
	if c.word.Load()&bitDone == 0 { // only the holder of LINK sets DONE
		c.done = make(chan struct{})
	}
	done := c.done // read before unlink: afterwards the operation may be consumed
	c.unlink(bitDone, 0)
	return done
}

// Discard gives the result up. When the operation is settled, now or later, its result goes to the
// pool's Dispose and its memory goes back to the pool. A goroutine that is already in Await still
// gets the result if it waits until the operation is settled. Discard has no effect on a handle
// that was consumed or discarded. It never blocks and allocates nothing.
func (f Future[T]) Discard() {
	c := f.cell
	if c == nil {
		return
	}
	for {
		w := c.load()
		if refuse(w, f.gen) != nil || w&(bitSettled|bitAwaited) == bitSettled|bitAwaited {
			return
		}
		if w&bitSettled == 0 {
			if c.cas(w, w|bitDiscarded) {
				return
			}
		} else if c.cas(w, consumed(w)) {
			pool := c.pool
			v, err := c.take(w)
			pool.dispose(v, err)
			return
		}
	}
}
