package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrClosed says that the credits or slots were closed, ErrDone that the channel which
// bounds a wait was closed first.
var (
	ErrClosed = errors.New("ring: closed")
	ErrDone   = errors.New("ring: the wait was given up")
)

// Credits is a counting semaphore whose waiters can give up. It counts in one
// word, and has a channel only for those who wait:
//
//	count >= 0   that many credits are free, nobody waits
//	count <  0   -count goroutines wait and no token is under way for them
//
// Acquire takes 1 from count, and owes itself a wait if the result is negative.
// Release adds 1, and owes a token if the result is not positive. The states
// of one acquirer:
//
//	        count-1 >= 0
//	start ----------------------------------------> holds a credit
//	  |                                               ^       |
//	  | count-1 < 0            token                  |       | Release:
//	  v            +----------------------------------+       | count+1, and a
//	waits ---------+                                          | token if <= 0
//	  |                                                       v
//	  | done or closed                                       end
//	  v
//	leaves --- count < 0: swap in count+1 ----------------> error
//	  |        (one waiter fewer; no token was meant for us)
//	  |
//	  +------- count >= 0: a token is under way for each who waits,
//	           so for us: take it, Release it ------------> error
//
// What holds, with W the goroutines in "waits" or "leaves" and K the tokens sent
// or owed: W = K + max(0, -count). So one who leaves and sees count >= 0 will
// get a token, and one who swaps a negative count took a place no token was
// meant for. A token stands for a credit that is out, of which there are n: the
// channel has n places and Release never blocks.
//
// A waiter that leaves in the second way waits for a Release that is between
// its two steps: for some instructions, or, if the scheduler took that goroutine
// away just there, until it runs again. Nobody else ever waits for another
// goroutine's step.
type Credits struct {
	// count is described above. Changed by Acquire, TryAcquire, Release and
	// leaving waiters; what a releaser wrote before is visible to the acquirer
	// of its credit, by count or through the channel.
	count atomic.Int64
	_     pad

	limit  int64         // n; immutable
	tokens chan struct{} // n places; sent by Release, received by waiters
	done   chan struct{} // closed by Close

	// closed is set by Close before it closes done; read by acquirers.
	closed atomic.Bool
	// lied is set by the first Restore that found itself lied to, which closes
	// broken: the invariant above does not hold any more, and leavers that
	// wait for a token need not get one.
	lied   atomic.Bool
	broken chan struct{}
}

// NewCredits makes n free credits. It panics if n is negative.
func NewCredits(n int) *Credits {
	if n < 0 {
		panic(fmt.Sprintf("ring: %d credits", n))
	}
	c := &Credits{limit: int64(n), tokens: make(chan struct{}, n), done: make(chan struct{}), broken: make(chan struct{})}
	c.count.Store(int64(n))
	return c
}

// TryAcquire takes a credit if one is free and the credits are not closed. Any
// goroutine may call it; it does not block or allocate.
func (c *Credits) TryAcquire() bool {
	if c.closed.Load() {
		return false
	}
	for {
		n := c.count.Load()
		if n <= 0 {
			return false
		}
		if c.count.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// Acquire takes a credit, waiting for one if none is free. Who waits longer is
// served first, as the channel of the Go runtime has it; a newcomer never
// overtakes. Any goroutine may call it. It does not allocate. done is as in
// [Slots.Wait].
//
// Errors: [ErrDone] if done is closed first, and [ErrClosed]. With an error the
// caller has no credit, and none was lost. A free credit is given even if done
// is closed.
func (c *Credits) Acquire(done <-chan struct{}) error {
	if c.closed.Load() {
		return ErrClosed
	}
	if c.count.Add(-1) >= 0 {
		return nil
	}
	select {
	case <-c.tokens:
		return nil
	case <-done:
		c.leave()
		return ErrDone
	case <-c.done:
		c.leave()
		return ErrClosed
	}
}

// leave ends the wait of a goroutine that took no token. If a token is on its
// way already it is taken and given back, unless a stranger's lie (Restore) has
// made away with it.
func (c *Credits) leave() {
	for {
		n := c.count.Load()
		if n >= 0 {
			break
		}
		if c.count.CompareAndSwap(n, n+1) {
			return
		}
	}
	select {
	case <-c.tokens:
		c.Restore(1) // false: a stranger has given it back already
	case <-c.broken:
	}
}

// Release gives a credit back. Any goroutine may call it, also after Close; it
// does not block or allocate. It panics if there was none to give back.
func (c *Credits) Release() { c.ReleaseN(1) }

// ReleaseN gives k credits back at once, as a batch of completions does. It
// panics if k is negative or more than are out.
func (c *Credits) ReleaseN(k int) {
	if k <= 0 {
		if k < 0 {
			panic(fmt.Sprintf("ring: release of %d credits", k))
		}
		return
	}
	now := c.count.Add(int64(k))
	if now > c.limit {
		panic(fmt.Sprintf("ring: %d credits of %d after a release of %d", now, c.limit, k))
	}
	for owed := min(int64(k), int64(k)-now); owed > 0; owed-- {
		select {
		case c.tokens <- struct{}{}:
		default:
			panic("ring: a credit was released twice")
		}
	}
}

// Restore is ReleaseN for a number that a stranger gave. It returns false,
// without blocking or panicking, if that cannot be: more than are out, or so many
// that those who took them cannot have used them yet. After false the credits are
// not to be trusted any more: Close them.
func (c *Credits) Restore(k int) bool {
	for {
		n := c.count.Load()
		if k < 0 || int64(k) > c.limit-max(n, 0) { // below zero all are out, the rest are waiters
			return false
		}
		if !c.count.CompareAndSwap(n, n+int64(k)) {
			continue
		}
		for owed := min(int64(k), -n); owed > 0; owed-- {
			select {
			case c.tokens <- struct{}{}:
			default: // given back again before the waiters had them
				if c.lied.CompareAndSwap(false, true) {
					close(c.broken)
				}
				return false
			}
		}
		return true
	}
}

// Close makes all waiters and all later acquirers fail. Credits that are out
// may still be released. It is idempotent, does not block, and any goroutine
// may call it.
func (c *Credits) Close() {
	if c.closed.CompareAndSwap(false, true) {
		close(c.done)
	}
}

// Available is the number of free credits right now.
func (c *Credits) Available() int { return int(max(c.count.Load(), 0)) }

// Waiting is the number of goroutines that wait right now and that no released
// credit is meant for yet.
func (c *Credits) Waiting() int { return int(max(-c.count.Load(), 0)) }

// Cap is the number of credits, free or not.
func (c *Credits) Cap() int { return int(c.limit) }
