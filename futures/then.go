package futures

// Then consumes the handle and arranges one call of fn with the result. The pool's Execute runs fn.
// Without an Execute, fn runs on the goroutine that settles, or in Then if the operation is settled
// already; fn should then not block.
//
// After misuse fn gets the error: ErrInvalid, ErrConsumed, ErrDiscarded, or ErrAwaited if a
// goroutine is in Await. Then waits only while another goroutine is inside Done, Then, Map, All,
// Any or Add on the same future. It allocates nothing itself; with an Execute, settling allocates
// the function that it passes to Execute. It panics if fn is nil.
func (f Future[T]) Then(fn func(T, error)) {
	if fn == nil {
		panic("futures: Then of a nil function")
	}
	if _, err := f.attach(fn, false); err != nil {
		var none T
		f.pool().call(fn, none, err)
	}
}

// attach consumes the handle and arranges one call of fn with the result. It returns the
// operation's driver, or nil if the operation is settled already. If direct is true, fn is internal
// and runs on the settling goroutine without the executor. If attach returns an error, fn is not
// called.
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
		w := c.load() // settled or already consumed; if it cannot be taken, link returns the error
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

// Map consumes f and returns the future of fn's result. It arranges one call of fn with f's result,
// where Then would call it. The returned future has the executor and the driver of f. After misuse
// of f, fn gets the error, as in Then. Discarding the returned future does not keep fn from
// running. Map allocates a cell, the options of a derived future, and the function that settles it. It panics
// if fn is nil.
func Map[T, U any](f Future[T], fn func(T, error) (U, error)) Future[U] {
	if fn == nil {
		panic("futures: Map of a nil function")
	}
	p, out := derive(Options[U]{Execute: f.pool().executor()})
	settle := func(v T, err error) { p.Settle(fn(v, err)) }
	d, err := f.attach(settle, false)
	if err != nil {
		var none T
		f.pool().call(settle, none, err)
	}
	// No other goroutine has the future out yet, and settling it does not read its driver.
	out.cell.driver = d
	return out
}
