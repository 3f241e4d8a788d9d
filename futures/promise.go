package futures

// Promise is the end of an operation that settles it. It is a value and may be copied; all copies
// are the same promise. The zero Promise is not valid.
type Promise[T any] struct {
	cell *cell[T]
	gen  uint64
}

// Settle gives the operation its result and wakes all its waiters. The first call returns true;
// every later call, even after the result was consumed, returns false and changes nothing.
//
// Settle never blocks and may be called from any goroutine. It may call the pool's Execute, or
// without one the callbacks of Then and Map, and for a discarded future the pool's Dispose. Settle
// copies v into the operation, which keeps it until the result is consumed.
func (p Promise[T]) Settle(v T, err error) bool {
	return p.cell != nil && p.cell.settle(p.gen, v, err)
}

// Fill stores the result without waking waiters; Publish wakes them. Fill and Publish together do
// what Settle does with one CAS instead of two. They are for an owner that alone settles the
// promise: no other goroutine may call Settle or Fill. Fill returns false, and stores nothing, if
// the promise was settled before. It never blocks; it copies v into the operation.
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

// Value returns a pointer to which the owner writes a successful result before it calls Publish.
// The memory may hold an old result: write all of it. As with Fill, the owner alone settles the
// promise. Value returns nil if the promise was settled before.
func (p Promise[T]) Value() *T {
	c := p.cell
	if c == nil {
		return nil
	}
	if w := c.load(); generationOf(w) != p.gen || w&bitSettling != 0 {
		return nil
	}
	if c.err != nil { // left by the slot's last operation
		c.err = nil
	}
	return &c.value
}

// Publish settles the operation with the result that was stored through Fill or Value, and wakes
// all its waiters. Call it once after Fill returned true or Value returned a pointer. Otherwise it
// is like Settle.
func (p Promise[T]) Publish() { p.cell.conclude(p.cell.load()) }

// Valid reports whether the promise is not settled yet. It never blocks; any goroutine may call it.
func (p Promise[T]) Valid() bool {
	if p.cell == nil {
		return false
	}
	w := p.cell.load()
	return generationOf(w) == p.gen && w&bitSettling == 0
}

// Wanted reports whether a result would still be taken: the promise is not settled, and the future
// was not discarded, or was discarded while a goroutine is in Await. False is final; true may be
// outdated. Wanted is one load; any goroutine may call it.
func (p Promise[T]) Wanted() bool {
	if p.cell == nil {
		return false
	}
	w := p.cell.load()
	return generationOf(w) == p.gen && w&bitSettling == 0 && w&(bitDiscarded|bitAwaited) != bitDiscarded
}

// settle implements Settle for a promise of generation gen. Without waiters and callbacks it takes
// two CAS.
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

// conclude publishes the result, which the caller has written. The argument w is the word as the
// caller last knew it.
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

// publish moves the word from w to the settled state of n, and then does what the flags in n
// require. It returns false if the word was no longer w. It reads the fields done and group before
// the CAS: after the CAS the cell may belong to another operation, unless the CAS itself consumed
// the operation (gone) or a goroutine is parked in the cell.
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
