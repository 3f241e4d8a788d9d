package futures

// Promise is the end of an operation that settles it. It is a value and may be copied; all copies
// are the same promise. The zero Promise is not valid.
type Promise[T any] struct {
	cell *cell[T]
	gen  uint64
}

// Settle gives the operation its result and wakes all its waiters. The first call returns true;
// every other one, also long after the result was consumed, returns false and changes nothing.
//
// It never blocks and may be called from any goroutine. The only other code it runs: callbacks of
// Then and Map, or the pool's Execute in their place; the pool's Dispose, if the future was
// discarded. v is copied into the operation, which owns it until it is consumed.
func (p Promise[T]) Settle(v T, err error) bool {
	return p.cell != nil && p.cell.settle(p.gen, v, err)
}

// Fill stores the result without waking waiters; Publish wakes them. Together they are Settle with
// one CAS instead of two, for an owner that alone settles the promise: no other goroutine may call
// Settle or Fill. Fill returns false, and stores nothing, if the promise was settled before. It
// never blocks; v is copied into the operation.
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

// Value returns where to write a successful result, for an owner that alone settles the promise
// (see Fill). The owner writes all of it, because it may hold an old result, and calls Publish.
// Value returns nil if the promise was settled before.
func (p Promise[T]) Value() *T {
	c := p.cell
	if c == nil {
		return nil
	}
	if w := c.load(); generationOf(w) != p.gen || w&bitSettling != 0 {
		return nil
	}
	if c.err != nil { // of the slot's last operation
		c.err = nil
	}
	return &c.value
}

// Publish wakes all waiters for the result that Fill stored. Call it once after a Fill that
// returned true or a Value that was not nil. Otherwise it is like Settle.
func (p Promise[T]) Publish() { p.cell.conclude(p.cell.load()) }

// Valid reports whether Settle would still be the first. It never blocks; any goroutine may call
// it.
func (p Promise[T]) Valid() bool {
	if p.cell == nil {
		return false
	}
	w := p.cell.load()
	return generationOf(w) == p.gen && w&bitSettling == 0
}

// Wanted reports whether the result may still be taken: Settle would be the first, and the future
// was not discarded (or a goroutine that awaited it then still does). False is final, true may be
// outdated. It is one load; any goroutine may call it.
func (p Promise[T]) Wanted() bool {
	if p.cell == nil {
		return false
	}
	w := p.cell.load()
	return generationOf(w) == p.gen && w&bitSettling == 0 && w&(bitDiscarded|bitAwaited) != bitDiscarded
}

// settle stores the result of generation gen and wakes the waiters. It returns false if the promise
// was settled before. Without waiters and callbacks it takes two CAS.
func (c *cell[T]) settle(gen uint64, v T, err error) bool {
	w := c.load()
	for {
		if generationOf(w) != gen || w&bitSettling != 0 {
			return false
		}
		if c.cas(w, w|bitSettling) {
			break
		}
		w = c.load()
	}
	c.value, c.err = v, err
	c.conclude(w | bitSettling)
	return true
}

// conclude publishes the result, which the caller has written; w is the word.
func (c *cell[T]) conclude(w uint64) {
	for ; ; w = c.load() {
		switch {
		case w&bitLink != 0:
			if c.cas(w, w|bitSettling|bitWritten) {
				return
			}
		case w&attended == 0:
			if c.cas(w, w|bitSettling|bitSettled) {
				return
			}
		case c.publish(w, w|bitSettling):
			return
		}
	}
}

// publish moves the word from w to its settled state, given the flags in n, and then does what
// those flags ask for. It returns false if the word was no longer w. It reads the fields before the
// CAS: after it the cell may belong to another operation, unless this CAS itself consumed it (gone)
// or an awaiter is parked in it.
func (c *cell[T]) publish(w, n uint64) bool {
	var done chan struct{}
	var group *Group
	if n&bitDone != 0 {
		done = c.done
	}
	if n&bitGrouped != 0 {
		group = c.group
	}
	gone := n&bitThen != 0 || n&(bitDiscarded|bitAwaited) == bitDiscarded
	to := n&^(bitParked|bitWritten) | bitSettled
	if gone {
		to = consumed(n)
	}
	if !c.cas(w, to) {
		return false
	}
	if n&bitParked != 0 {
		c.signal(SignalSettled)
	}
	if done != nil {
		close(done)
	}
	if group != nil {
		group.arrive()
	}
	if gone {
		pool, then, direct := c.pool, c.then, c.direct
		v, err := c.take(n)
		switch {
		case n&bitThen == 0:
			pool.dispose(v, err)
		case direct:
			then(v, err)
		default:
			pool.call(then, v, err)
		}
	}
	return true
}
