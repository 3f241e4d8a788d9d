package futures

import "context"

// Future is the end of an operation that takes its result. It is a value and may be copied; all
// copies are the same future, and the result is taken once. The zero Future is not valid. Every
// method may be called from any goroutine.
type Future[T any] struct {
	cell *cell[T]
	gen  uint64
}

// pool returns the pool of the future's cell, or nil. A cell's pool never changes, so old handles
// may call it too.
func (f Future[T]) pool() *Pool[T] {
	if f.cell == nil {
		return nil
	}
	return f.cell.pool
}

// Await blocks until the operation is settled, and takes its result. While it waits, the
// operation's driver, if any, may do its work on this goroutine.
//
// If ctx ends first Await returns ctx.Err() (or its driver's error) and consumes nothing: the
// future can be awaited, polled or discarded later. A result that is there is returned even if ctx
// has ended. One goroutine awaits at a time: a second gets ErrAwaited. Other misuse: ErrInvalid,
// ErrConsumed, ErrDiscarded, ErrNilContext. It allocates nothing in steady state (the first park in
// a cell's life makes a channel).
//
// Await calls ctx.Done once, before it waits, and ctx.Err only after the wait. If the goroutine
// ends or panics while it waits, because its driver runs code that does so, the future is
// discarded.
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
			if lightly(w) { // as claim, without one more copy of the result
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
		if !asked { // before AWAITED: it may be user code, which may not return
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
		if w&bitSettled != 0 { // only this goroutine can consume it now, and no flag changes any more
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

// await is wait, for the goroutine that set AWAITED. If Goexit or a panic unwinds it, it calls
// forsake, which discards the result.
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

// Poll takes the result if it is there: ok is true and the handle is consumed. If it is not there
// yet, ok is false and err nil. On a handle that has no result any more, ok is true and err says
// why (ErrInvalid, ErrConsumed, ErrDiscarded), so that a polling loop ends. While another goroutine
// awaits the future, ok is false and err is ErrAwaited. Poll never blocks and allocates nothing.
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

// Settled reports whether there is nothing to wait for: the result is there, or the handle has none
// any more. It consumes nothing, never blocks and allocates nothing.
func (f Future[T]) Settled() bool {
	if f.cell == nil {
		return true
	}
	w := f.cell.load()
	return w&bitSettled != 0 || refuse(w, f.gen) != nil
}

// Valid reports whether the handle's result was neither taken nor discarded. It never blocks and
// allocates nothing.
func (f Future[T]) Valid() bool {
	return f.cell != nil && refuse(f.cell.load(), f.gen) == nil
}

// closed is the channel that Done returns if there is nothing to wait for.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done returns a channel that is closed when the operation is settled. It consumes nothing: take
// the result with Poll or Await. For a handle that has no result any more the channel is closed.
// Done waits at most for another goroutine that is calling Done, Then or Add on the same future.
// The first call on an unsettled future allocates the channel.
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
	done := c.done // valid until unlink; after it the cell may be consumed
	c.unlink(bitDone, 0)
	return done
}

// Discard gives the result up. When the operation is settled, now or later, its result goes to the
// pool's Dispose and its memory back to the pool. A goroutine that is in Await at that time still
// gets the result if it stays until then. On a handle already consumed or discarded Discard does
// nothing. It never blocks and allocates nothing.
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
