package futures

// Then consumes the handle and has fn called once with the result. fn runs on the pool's Execute;
// by default on the goroutine that settles, or on this one if the operation is settled already. fn
// should not block there.
//
// Misuse reaches fn as its error: ErrInvalid, ErrConsumed, ErrDiscarded, or ErrAwaited if a
// goroutine is in Await. Then waits at most for another goroutine that is calling Done, Then or Add
// on the same future. It allocates nothing itself; with an Execute, settling allocates the function
// it passes.
func (f Future[T]) Then(fn func(T, error)) {
	if _, err := f.attach(fn, false); err != nil {
		var none T
		f.pool().call(fn, none, err)
	}
}

// attach consumes the handle, has fn called with the result, and returns the operation's driver, or
// nil if it is settled already. direct says that fn is internal and runs at once on the settling
// goroutine. With an error fn is not called.
func (f Future[T]) attach(fn func(T, error), direct bool) (Driver, error) {
	c := f.cell
	if c == nil {
		return nil, ErrInvalid
	}
	for {
		settled, err := c.link(f.gen, bitAwaited)
		if err != nil {
			return nil, err
		}
		if !settled {
			break
		}
		w := c.load() // settled or already consumed; if it cannot be taken, link says why
		if refuse(w, f.gen) == nil && w&bitAwaited == 0 && c.cas(w, consumed(w)) {
			pool := c.pool
			v, err := c.take(w)
			if direct {
				fn(v, err)
			} else {
				pool.call(fn, v, err)
			}
			return nil, nil
		}
	}
	c.then, c.direct = fn, direct
	d := c.driver
	if !c.unlink(bitThen, bitAwaited) {
		return nil, ErrAwaited
	}
	return d, nil
}

// Map consumes f and returns the future of fn's result. fn is called once, with f's result, on f's
// executor; callbacks of the returned future run there, too, and awaiting it drives what awaiting f
// would have driven. Misuse of f reaches fn as its error, as in Then. Discarding the returned
// future does not keep fn from running. Map allocates a cell, the options of a derived future, and
// the function that settles it.
func Map[T, U any](f Future[T], fn func(T, error) (U, error)) Future[U] {
	p, out := derive(Options[U]{Execute: f.pool().executor()})
	settle := func(v T, err error) { p.Settle(fn(v, err)) }
	d, err := f.attach(settle, false)
	if err != nil {
		var none T
		f.pool().call(settle, none, err)
	}
	// No other goroutine has out yet, and settling it does not read the driver.
	out.cell.driver = d
	return out
}
