package futures

import "github.com/verbena-rdma/verbena/internal/model"

// cell is the shared state of one promise and its future. The word (in Waiter) says who may touch which field; see
// word.go. A cell belongs to one pool, or to none, for life.
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

// settle stores the result of generation gen and wakes whoever waits; false when it was settled before.
// Without anyone attached it is two CAS.
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

// conclude publishes the result, which is in; w is the word.
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

// publish moves the word from w to its settled state, given the flags in n, and then does what those flags ask for;
// false when the word was no longer w. The fields are read before the CAS: after it the cell may be another's, unless
// this CAS itself consumed it (gone) or an awaiter is parked in it.
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
