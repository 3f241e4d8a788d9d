package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
)

// How much of what is under way can be called back:
//
//	the wait       its context, everywhere: the caller has his goroutine, at once; the
//	               operation goes on and keeps its lease
//	a peer's key   Window.Revoke, for the holder of the memory: at once; the
//	               connection lives on
//	everything     Conn.Cancel, for who started it: through the queue pair's ERR state
//
// A verbs device has nothing between: it never takes back one request that was posted.

// cancelBound is how long Cancel waits at most: what Close waits after its context has
// ended.
const cancelBound = closeBound + leaveBound

// Cancel ends all operations of the connection: it moves the queue pair to ERR, so that
// the device gives everything back, and waits until everything has completed, once,
// with its outcome or with ErrCancelled. When it returns nil the device reads and
// writes memory for none of the operations that were started before: buffers and
// regions that were lent to them are the caller's, whatever the peer still answers.
// So are those of operations whose starting call had not returned when Cancel was
// called, when that has returned and they have completed.
//
// The connection has failed then, with ErrCancelled as its cause; the peer is told as by
// Close. What has arrived can still be received, and Close is still needed. Of a
// connection that has failed, or is being closed, it waits for the same and changes
// nothing else. The memory of shared receives (Options.Shared) stays the device's.
//
// It waits for no peer, only for the device: a second if that flushes nothing, and while
// the kernel destroys the queue pair then. When ctx ends first it returns the context's
// error, and ErrReactorBusy after 6.5 s; the cancelling goes on, and Cancel may be called
// again. It is idempotent; any goroutine but the turn's (Sink, Runtime.After).
//
// Implements: ibv_modify_qp to IBV_QPS_ERR, and the drain behind it.
func (c *Conn) Cancel(ctx context.Context) error {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return err
	}
	home := c.cancel()
	t := time.NewTimer(cancelBound)
	defer t.Stop()
	err = fmt.Errorf("%w within %v", ErrReactorBusy, cancelBound)
	select {
	case <-home:
		return nil
	case <-c.closed: // and its reactor may be
		return nil
	case <-asked:
		err = asked.Why(ctx, asked.Err())
	case <-t.C:
	}
	return fmt.Errorf("cancelling the operations with %v: %w", c.remote, err)
}

// cancel is Cancel that waits for nothing: home is closed when everything is.
func (c *Conn) cancel() (home chan struct{}) {
	home = make(chan struct{})
	c.setCause(ErrCancelled)
	c.q.Fail(c.cause.Load())
	c.sh.r.Defer(func() { c.flushAll(home) })
	return home
}

// flushAll has the device give everything back, and home closed then. Holder only.
func (c *Conn) flushAll(home chan struct{}) {
	if c.drained {
		close(home)
		return
	}
	c.homes = append(c.homes, home)
	switch c.state {
	case connConnecting: // nobody has it yet but who dials
		c.giveUp(c.cause.Load())
	case connOpen, connLeft:
		c.fail(c.cause.Load())
	case connDraining: // what it waits for is not waited for
		c.disconnect()
	}
}
