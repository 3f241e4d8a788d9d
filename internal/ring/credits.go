package ring

import (
	"fmt"
	"sync/atomic"
)

// Credits is a counting semaphore whose waiters can give up. One word counts the free credits; a
// [line] holds the goroutines that wait.
type Credits struct {
	// count is the number of free credits. Acquire, TryAcquire, Release and handOut change it. All
	// writes of a goroutine before it releases a credit are visible to the goroutine that acquires
	// that credit, through count or through the line.
	count atomic.Int64
	_     pad // a goroutine that calls ReleaseLater reads waiting, and should not share the line of count
	line[struct{}]
	// spare is the number of free credits that ReleaseLater was called for and that count does not
	// include yet. ReleaseLater adds; gather takes all of them.
	spare atomic.Int64
	_     pad

	limit int64 // immutable
	// overReturned is set by the first Restore for which the line has no place left. That Restore
	// closes broken: the line's invariant no longer holds, and a waiter that leaves may never get
	// the credit that it waits for.
	overReturned atomic.Bool
	broken       chan struct{}
}

// NewCredits returns a semaphore with n free credits. It panics if n is negative.
func NewCredits(n int) *Credits {
	if n < 0 {
		panic(fmt.Sprintf("ring: %d credits", n))
	}
	c := &Credits{limit: int64(n), broken: make(chan struct{})}
	c.items = n
	c.count.Store(int64(n))
	return c
}

// TryAcquire takes a credit if one is free, no goroutine waits for one, and the credits are not
// closed. Any goroutine may call it; it does not block or allocate.
func (c *Credits) TryAcquire() bool {
	if c.closed.Load() || c.waiting.Load() > 0 {
		return false
	}
	_, ok := c.take()
	return ok
}

// Acquire takes a credit, and waits for one if none is free. Waiters are served in order; a
// newcomer never overtakes. Any goroutine may call it. Only the first wait allocates. The channel done ends
// the wait, as in [Slots.Wait].
//
// Errors: [ErrDone] if done is closed first, and [ErrClosed]. With an error the caller has no
// credit, and none was lost. A free credit is given even if done is closed.
func (c *Credits) Acquire(done <-chan struct{}) error {
	if c.TryAcquire() {
		return nil
	}
	_, err := c.wait(c, done, c.broken)
	return err
}

// take implements store.
func (c *Credits) take() (one struct{}, ok bool) {
	for {
		n := c.count.Load()
		if n <= 0 {
			if c.gather() {
				continue
			}
			return one, false
		}
		if c.count.CompareAndSwap(n, n-1) {
			return one, true
		}
	}
}

// put implements store. It ignores the result of Restore, which is false if the peer has given the
// credit back already.
func (c *Credits) put(struct{}) { c.Restore(1) }

// Release gives a credit back. Any goroutine may call it, also after Close; it does not block or
// allocate. It panics if all credits are free.
func (c *Credits) Release() { c.ReleaseN(1) }

// ReleaseN gives k credits back with one change of the count. It panics if k is negative or more
// than the number of credits in use.
func (c *Credits) ReleaseN(k int) {
	if !c.Restore(k) {
		panic(fmt.Sprintf("ring: release of %d credits, %d of %d are free", k, c.count.Load(), c.limit))
	}
}

// ReleaseLater gives a credit back, perhaps together with later ones: it changes the count only once
// for batch credits, or if a goroutine waits. A goroutine that finds the count at 0 adds the credits
// given back so far, so none waits beside a free credit. ReleaseLater is for one goroutine that gives
// credit after credit back while others, on other processors, acquire them: each side then mostly
// changes a word of its own. It does not block or allocate.
func (c *Credits) ReleaseLater(batch int) {
	if c.spare.Add(1) >= int64(batch) || c.waiting.Load() > 0 {
		c.gather()
	}
}

// gather adds the spare credits to the count, and hands credits out to waiters. It returns false if
// there were none.
func (c *Credits) gather() bool {
	if c.spare.Load() == 0 {
		return false
	}
	n := c.spare.Swap(0)
	if n == 0 {
		return false
	}
	c.ReleaseN(int(n))
	return true
}

// Restore gives k credits back as ReleaseN does, for a number that the peer sent. It returns false,
// and does not panic, if k is impossible: negative, more than the number of credits in use, or so
// large that it includes credits still on their way to waiters. After false the count is wrong:
// Close the credits. Restore does not block.
func (c *Credits) Restore(k int) bool {
	for {
		n := c.count.Load()
		if k < 0 || int64(k) > c.limit-n {
			return false
		}
		if c.count.CompareAndSwap(n, n+int64(k)) {
			break
		}
	}
	if c.waiting.Load() == 0 || c.handOut(c) {
		return true
	}
	if c.overReturned.CompareAndSwap(false, true) { // credits came back before their waiters had them
		close(c.broken)
	}
	return false
}

// Available returns the number of free credits right now.
func (c *Credits) Available() int { return int(c.count.Load() + c.spare.Load()) }

// Cap returns the number of credits, free or not.
func (c *Credits) Cap() int { return int(c.limit) }
