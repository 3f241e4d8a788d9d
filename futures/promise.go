package futures

// Promise is the end of an operation that settles it. It is a value and may be copied; all copies are the same promise.
// The zero Promise is not valid.
type Promise[T any] struct {
	cell *cell[T]
	gen  uint64
}

// Settle gives the operation its result and wakes everybody who waits for it. The first call returns true; every other
// one, also long after the result was consumed, returns false and changes nothing.
//
// It never blocks and may be called from any goroutine. It runs no code but: callbacks of Then and Map, or the Execute of
// the pool in their place; the pool's Dispose, if the future was discarded. v is copied into the operation, which owns
// it until it is consumed.
func (p Promise[T]) Settle(v T, err error) bool {
	return p.cell != nil && p.cell.settle(p.gen, v, err)
}

// Fill stores the result without telling anybody; Publish does that. Together they are Settle with one CAS instead of two, for an
// owner who alone settles the promise: nobody else may call Settle or Fill. False, and nothing is stored: it was settled
// before. Fill never blocks; v is copied into the operation.
func (p Promise[T]) Fill(v T, err error) bool {
	c := p.cell
	if c == nil {
		return false
	}
	if w := c.load(); generationOf(w) != p.gen || w&bitSettling != 0 {
		return false
	}
	c.value, c.err = v, err
	return true
}

// Value is where the result of an operation that ends well goes, for the owner who alone settles it (see Fill): he
// writes all of it there, which may hold an old one, and calls Publish. Nil: it was settled before.
func (p Promise[T]) Value() *T {
	c := p.cell
	if c == nil {
		return nil
	}
	if w := c.load(); generationOf(w) != p.gen || w&bitSettling != 0 {
		return nil
	}
	if c.err != nil { // of a seat's last operation
		c.err = nil
	}
	return &c.value
}

// Publish wakes everybody who waits for the result that Fill stored. It must follow, once, a Fill that was true or a Value
// that was there. Otherwise as Settle.
func (p Promise[T]) Publish() { p.cell.conclude(p.cell.load()) }

// Valid reports whether Settle would still be the first. It never blocks; from any goroutine.
func (p Promise[T]) Valid() bool {
	if p.cell == nil {
		return false
	}
	w := p.cell.load()
	return generationOf(w) == p.gen && w&bitSettling == 0
}

// Wanted reports whether somebody may still take the result: Settle would be the first, and the future was not discarded
// (or a goroutine that was awaiting it then still does). False is final, true may be old. One load; from any goroutine.
func (p Promise[T]) Wanted() bool {
	if p.cell == nil {
		return false
	}
	w := p.cell.load()
	return generationOf(w) == p.gen && w&bitSettling == 0 && w&(bitDiscarded|bitAwaited) != bitDiscarded
}
