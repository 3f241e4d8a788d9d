package runtime

import (
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// creditWait is one wait for a credit. The waiting goroutine awaits a future, so it drives the reactor: it
// posts the requests that were submitted earlier, and polls the peer's frame that returns the credit. The
// waits of a connection form a line, oldest first.
//
//	waitCredit ──> creditIn ──serveCredits──> creditWaits ──serveCredits──> settled: with a credit, or
//	                                                                      the cause of the connection
//
// No credit stays free while a goroutine waits. A goroutine that gives a credit back then reads
// creditLine, and schedules serveCredits if it is not 0. A waiter raises creditLine, and then schedules
// serveCredits.
type creditWait struct {
	hook    ring.Hook[creditWait]
	c       *Conn
	promise futures.Promise[*Conn]
}

// wanted implements waiter.
func (w *creditWait) wanted() bool { return w.promise.Wanted() }

// giveUp implements waiter. The user does not see the error.
func (w *creditWait) giveUp() { w.end(futures.ErrDiscarded) }

// end settles the promise of w, with a credit if err is nil, and gives w back to the pool.
func (w *creditWait) end(err error) {
	c, p := w.c, w.promise
	w.c, w.promise = nil, futures.Promise[*Conn]{}
	creditWaitPool.Put(w)
	p.Settle(c, err)
	c.creditLine.Add(-1) // after Settle: if the future was discarded meanwhile, the credit comes back first
}

// InboxHook returns the link for Conn.creditIn.
func (w *creditWait) InboxHook() *ring.Hook[creditWait] { return &w.hook }

var creditWaitPool = sync.Pool{New: func() any { return new(creditWait) }}

// takeCredits acquires up to n free credits, and returns their number. It acquires none while there are
// earlier waits.
func (c *Conn) takeCredits(n int) int {
	if c.creditLine.Load() > 0 {
		return 0
	}
	return c.credits.take(n)
}

// waitCredit waits for a credit, until asked ends or the connection ends.
func (c *Conn) waitCredit(asked reactor.DoneContext) error {
	driver := c.sh.r.Driver()
	p, f := c.rt.creditWaits.New(driver)
	w := creditWaitPool.Get().(*creditWait)
	w.c, w.promise = c, p
	c.creditLine.Add(1)
	c.creditIn.Push(w)
	c.sh.r.Schedule(&c.creditWaitTask, driver != nil)
	if _, err := reactor.Await(asked, asked, f); err != nil {
		if cause := c.Err(); cause != nil {
			return cause
		}
		return fmt.Errorf("waiting for one of the peer's receives: %w", err)
	}
	return nil
}

// disposeCredit gives back the credit of a wait that was given up. It is the Dispose function of
// Runtime.creditWaits.
func disposeCredit(c *Conn, err error) {
	if err == nil {
		c.creditBack(verbs.WRSend)
	}
}

// serveCredits gives free credits to the waits, oldest first. If the connection has ended, it ends all
// waits. It is the function of Conn.creditWaitTask. Holder only.
func (c *Conn) serveCredits() {
	for w := c.creditIn.TakeAll(); w != nil; {
		next := w.hook.Unlink()
		c.creditWaits = append(c.creditWaits, w)
		w = next
	}
	done := 0
	for ; done < len(c.creditWaits); done++ {
		w := c.creditWaits[done]
		if !w.wanted() {
			w.giveUp()
			continue
		}
		err := c.cause.Load()
		if err == nil && c.credits.take(1) == 0 {
			break
		}
		w.end(err)
	}
	c.creditWaits = served(c.creditWaits, done, &c.creditsPruned)
}
