package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
)

// A program can cancel:
//
//	a wait           by ending its context: the waiting call returns at once; the operation
//	                 continues, and its memory stays leased
//	a peer's key     by Window.Revoke on the side that has the memory: the key becomes
//	                 invalid at once; the connection stays open
//	all operations   by Conn.Cancel on the side that started the operations: Cancel moves
//	of a connection  the queue pair to ERR
//
// A verbs device cannot cancel a single posted request.

// cancelBound is the longest time that Cancel waits: closeBound for the reactor, and leaveBound for
// the kernel. Close, too, waits at most cancelBound after its context has ended.
const cancelBound = closeBound + leaveBound

// Cancel ends all operations of the connection. It moves the queue pair to ERR, so that the device
// flushes all requests, and waits until all operations have completed. An operation completes with
// ErrCancelled if the device had not completed it before. When Cancel returns nil, the device no
// longer accesses the memory of operations that were started before Cancel. The caller owns this
// memory again, even if the peer still sends. If another goroutine was starting an operation when
// Cancel was called, the operation keeps its memory until the starting call has returned and the
// operation has completed.
//
// Cancel fails the connection with ErrCancelled as its cause. The peer is notified as by Close.
// Messages that have arrived can still be received, and the caller must still call Close. If the
// connection had already failed, Cancel only waits. If Close is waiting for outstanding sends,
// Cancel ends that wait. Cancel does not end shared receives (Options.Shared): the device keeps
// their memory.
//
// Cancel waits for the device but never for the peer. If the device has not flushed all requests
// within one second, Cancel waits until the queue pair is destroyed. If ctx ends first, Cancel
// returns the context's error. After 6.5 s (cancelBound) it returns ErrReactorBusy. In both cases
// the cancellation goes on, and Cancel may be called again. Cancel is idempotent. Any goroutine may
// call Cancel, but not in a Sink or in a function given to Runtime.After or Runtime.WatchDevice.
//
// Implements: ibv_modify_qp to IBV_QPS_ERR, and the drain that follows.
func (c *Conn) Cancel(ctx context.Context) error {
	asked, err := reactor.DoneOf(ctx)
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
	case <-c.closed: // needed if the reactor is closed, because flushAll may then never run and never close home
		return nil
	case <-asked:
		err = asked.Cause(ctx, asked.Err())
	case <-t.C:
	}
	return fmt.Errorf("cancelling the operations with %v: %w", c.remote, err)
}

// cancel is Cancel without the wait. It returns the channel home, which is closed when all
// operations have completed.
func (c *Conn) cancel() (home chan struct{}) {
	home = make(chan struct{})
	c.setCause(ErrCancelled)
	c.q.Fail(c.cause.Load())
	c.sh.r.Defer(func() { c.flushAll(home) })
	return home
}

// flushAll makes the device flush all requests. When no request is outstanding any more, the
// channel home is closed. Holder only.
func (c *Conn) flushAll(home chan struct{}) {
	if c.drained {
		close(home)
		return
	}
	c.drainWaiters = append(c.drainWaiters, home)
	switch c.state {
	case connConnecting: // the user does not have the connection yet
		c.giveUp(c.cause.Load())
	case connOpen, connLeft:
		c.fail(c.cause.Load())
	case connDraining: // end Close's wait for outstanding sends
		c.disconnect()
	}
}
