package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
)

// There are three ways to cancel:
//
//	a wait         end its context: the caller returns at once; the operation goes on and
//	               keeps its lease
//	a peer's key   Window.Revoke, called by the owner of the memory: the key becomes
//	               invalid at once; the connection stays open
//	everything     Conn.Cancel, called by the initiator: moves the queue pair to ERR
//
// A verbs device cannot cancel a single posted request.

// cancelBound is the longest that Cancel waits. It equals the longest wait of Close after its
// context has ended.
const cancelBound = closeBound + leaveBound

// Cancel ends all operations of the connection. It moves the queue pair to ERR, so that the
// device flushes all requests. It waits until each operation has completed, with its result
// or with ErrCancelled. When Cancel returns nil, the device accesses no memory of operations
// that were started before: the caller owns their buffers and regions again, whatever the
// peer still sends. If a goroutine was still starting an operation when Cancel was called,
// the caller owns that operation's memory after the starting call has returned and the
// operation has completed.
//
// The connection has then failed with ErrCancelled as its cause, and the peer is notified as
// by Close. Messages that have arrived can still be received, and the caller must still call
// Close. On a connection that has failed or is being closed, Cancel only waits. The device
// keeps the memory of shared receives (Options.Shared).
//
// Cancel waits for the device but never for the peer. If the device flushes nothing within one
// second, Cancel waits until the kernel has destroyed the queue pair. It returns the context's
// error if ctx ends first, and ErrReactorBusy after 6.5 s. In both cases the cancellation goes
// on, and Cancel may be called again. It is idempotent. Any goroutine may call it except one
// that holds the turn (Sink, Runtime.After).
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
	case <-c.closed: // if its reactor is closed too, nothing closes home
		return nil
	case <-asked:
		err = asked.Cause(ctx, asked.Err())
	case <-t.C:
	}
	return fmt.Errorf("cancelling the operations with %v: %w", c.remote, err)
}

// cancel is Cancel without the wait. It returns a channel that is closed when all operations
// have completed.
func (c *Conn) cancel() (home chan struct{}) {
	home = make(chan struct{})
	c.setCause(ErrCancelled)
	c.q.Fail(c.cause.Load())
	c.sh.r.Defer(func() { c.flushAll(home) })
	return home
}

// flushAll makes the device flush all requests, and closes home when none is outstanding any
// more. Holder only.
func (c *Conn) flushAll(home chan struct{}) {
	if c.drained {
		close(home)
		return
	}
	c.drainWaiters = append(c.drainWaiters, home)
	switch c.state {
	case connConnecting: // the user does not have it yet
		c.giveUp(c.cause.Load())
	case connOpen, connLeft:
		c.fail(c.cause.Load())
	case connDraining: // end the wait for outstanding sends
		c.disconnect()
	}
}
