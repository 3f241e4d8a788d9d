package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// flushBound is the time that the device has to flush a queue pair in ERR. After that time the
// queue pair is destroyed, because some devices flush it only when it is destroyed.
const flushBound = time.Second

// fail ends a connection because of a failure. An open one moves its queue pair to ERR:
// outstanding requests are flushed and complete with the cause, and arrived messages can still
// be received. Holder only.
func (c *Conn) fail(cause error) {
	_, panicked := errors.AsType[*PanicError](cause) // its value may wrap ErrDeviceRemoved of another device
	if !panicked && errors.Is(cause, verbs.ErrDeviceRemoved) {
		c.rt.deviceGone()
		c.failRemoved()
		return
	}
	switch c.state {
	case connConnecting:
		c.giveUp(cause)
	case connOpen, connLeft:
		c.setCause(cause)
		c.state = connFailed
		c.disconnectQP()
		// A device that flushes only at destruction would keep the operations for ever.
		c.within(flushBound, func() {
			if !c.drained {
				c.destroy(nil)
			}
		})
	case connDraining: // the outstanding sends will not complete
		c.disconnect()
	}
}

// ackGrace is how long the connection waits for acknowledgments after the peer has disconnected.
// The peer's queue pair is then usually in ERR and sends none any more. Acknowledgments sent before
// may be delayed by reordering in the network or by a busy machine, but by much less than
// ackGrace. ackGrace also exceeds one ACK timeout of the software RNIC (67 ms), in case an
// acknowledgment was lost and the peer's queue pair still answers. It is short, because
// operations that the peer did not take wait for all of it.
const ackGrace = 100 * time.Millisecond

// peerLeft handles DISCONNECTED. An open connection accepts no more operations. Its queue pair
// keeps its state until no send is outstanding, at most for ackGrace, because acknowledgments may
// still arrive. Then the connection fails, and fail disconnects this side. A Close in progress
// waits in the same way. In other states there is no wait. Holder only.
func (c *Conn) peerLeft() {
	over := func() { c.fail(ErrPeerClosed) }
	switch c.state {
	case connOpen:
		c.setCause(ErrPeerClosed)
		c.state = connLeft
		c.refuseOps()
		c.q.SendsIdle(over)
	case connDraining: // Close has called SendsIdle already, or Abort needs no such call
	default:
		over()
	}
	if c.state == connLeft || c.state == connDraining && !c.disconnecting {
		c.within(ackGrace, over)
	}
}

// within sets the connection's only timer to call fn after d, in place of the call set before:
// each step of the teardown has its own bound. A running timer keeps the connection in memory, so
// the function destroy stops it. Holder only.
func (c *Conn) within(d time.Duration, fn func()) {
	c.sh.r.StopTimer(c.timer)
	c.timer = c.sh.r.After(d, fn)
}

// causeBound is how long a connection waits for the reason after its queue pair was found in ERR.
// The events that give the reason, DISCONNECTED and those of the device, are queued when the queue
// pair changes state, and arrive within microseconds.
const causeBound = 50 * time.Millisecond

// flushed handles the first flushed completion of a connection without a cause. Holder only.
func (c *Conn) flushed() {
	c.sh.r.After(causeBound, func() {
		if c.state == connOpen {
			c.fail(fmt.Errorf("%w: it was moved to ERR without a failed completion", ErrQueuePair))
		}
	})
}

// disconnectQP disconnects. That moves the queue pair to ERR, and the device flushes all requests.
func (c *Conn) disconnectQP() {
	c.refuseOps()
	if err := c.id.Disconnect(); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) { // an event reports the removal
		c.closeErr = errors.Join(c.closeErr, err)
	}
	c.q.Idle(c.onDrained)
}

// refuseOps makes the connection accept no more operations.
func (c *Conn) refuseOps() {
	c.q.Fail(c.cause.Load())
	if c.credits != nil {
		c.credits.Close()
	}
}

// onDrained is called when nothing is outstanding any more. Receivers get the arrived messages,
// then the cause. onDrained seals the queue, because a goroutine that checked the connection
// before the failure may still submit a request, which must not be posted.
func (c *Conn) onDrained() {
	c.drained = true
	c.q.Seal()
	c.match()
	for _, home := range c.drainWaiters {
		close(home)
	}
	c.drainWaiters = nil
	c.report(false)
}

// closeBound is how long Close waits for its reactor after its context has ended: two
// flushBounds, and a margin for a busy machine.
const closeBound = 2*flushBound + 500*time.Millisecond

// Close closes the connection gracefully. It refuses new operations, waits until no send is
// outstanding or ctx ends, disconnects, and frees all resources. Operations that are still
// outstanding when it disconnects complete with an error. The caller keeps messages that it has
// not released. Close is idempotent; every call waits until the connection is closed.
//
// If the peer has disconnected, Close waits at most 100 ms for acknowledgments.
//
// After the end of ctx, Close waits only for its reactor, and for the kernel to destroy the
// queue pair. If that takes more than some seconds, Close returns ErrReactorBusy, and the
// connection closes later.
func (c *Conn) Close(ctx context.Context) error { return c.close(ctx, ErrConnClosed) }

// close is Close with the cause to record.
func (c *Conn) close(ctx context.Context, cause error) error {
	if ctx == nil {
		return ErrNilContext
	}
	done := ctx.Done()
	c.setCause(cause)
	c.end(false)
	select {
	case <-c.closed:
		return c.closeErr
	case <-done:
	}
	c.Abort()
	if bound, ok := c.leaving.waitBound(c.closed); !ok { // Abort ended all waits for the peer
		return fmt.Errorf("closing the connection to %v: %w within %v", c.remote, ErrReactorBusy, bound)
	}
	return c.closeErr
}

// leaveBound is how much longer Close waits while the kernel destroys the queue pair. The kernel
// waits for each packet in the network stack. A packet to a neighbor that does not answer stays
// there for three ARP requests, one second apart (Linux ip-sysctl, neigh/default/ucast_solicit
// and retrans_time_ms). One more second is a margin for a busy machine. See closingID.
const leaveBound = 3*time.Second + time.Second

// leaving is true from the beginning of the queue pair's destruction. The holder sets it, and
// Close reads it. It publishes nothing else.
type leaving struct{ uatomic.Bool }

// waitBound waits at most closeBound until closed is closed, and leaveBound longer if l is set by
// then. It returns the limit that applied, and reports whether closed was closed.
func (l *leaving) waitBound(closed <-chan struct{}) (bound time.Duration, ok bool) {
	if waitBound(closed, closeBound) {
		return closeBound, true
	}
	if !l.Load() {
		return closeBound, false
	}
	return closeBound + leaveBound, waitBound(closed, leaveBound)
}

// waitBound waits until ch is closed, at most for d. It reports whether ch was closed.
func waitBound(ch <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ch:
		return true
	case <-t.C:
		return false
	}
}

// Abort closes the connection without waiting. Outstanding operations soon complete with an
// error. Any goroutine may call it.
func (c *Conn) Abort() { c.end(true) }

// end starts the teardown. If hard is true, it does not wait for outstanding sends.
func (c *Conn) end(hard bool) {
	c.setCause(ErrConnClosed)
	c.q.Fail(c.cause.Load())
	c.sh.r.Defer(func() {
		switch c.state {
		case connOpen, connLeft:
			c.state = connDraining
			if c.credits != nil {
				c.credits.Close()
			}
			if !hard {
				c.q.SendsIdle(c.disconnect)
				return
			}
			c.disconnect()
		case connDraining:
			if hard {
				c.destroy(nil)
			}
		case connFailed:
			c.disconnect()
		case connConnecting:
			c.giveUp(c.cause.Load())
		}
	})
}

// disconnect disconnects, and destroys the connection as soon as all requests are flushed, or
// after flushBound.
func (c *Conn) disconnect() {
	if c.state == connGone || c.disconnecting {
		return
	}
	c.disconnecting = true
	if c.lost { // a removed device flushes nothing
		c.destroy(nil)
		return
	}
	if c.state == connDraining {
		c.disconnectQP()
	}
	c.within(flushBound, func() { c.destroy(nil) })
	c.q.Idle(func() { c.afterLastWQE(func() { c.destroy(nil) }) })
}

// destroy frees all resources and then calls done, which may be nil. Holder only.
func (c *Conn) destroy(done func()) {
	if c.state == connGone {
		return
	}
	c.state = connGone
	c.sh.r.StopTimer(c.timer)
	if c.cause.Load() != nil { // Seal: requests submitted from now on are not posted and complete with the cause
		c.refuseOps()
	}
	finish := func(err error) {
		// The device may have refused to close a window while the queue pair existed: try again.
		c.closeErr = errors.Join(c.closeErr, err, c.closeWindows())
		if c.admitted {
			c.closeErr = errors.Join(c.closeErr, c.q.Release(c.endCause()))
		} else {
			for i := range c.recvs {
				c.recvs[i].free()
			}
			c.closeErr = errors.Join(c.closeErr, c.q.Discard())
		}
		c.onDrained()
		c.freeArrived()
		c.rt.forget(c)
		c.report(true)
		close(c.closed)
		c.takeBack() // frees the messages of futures that were discarded until now
		if done != nil {
			done()
		}
	}
	if c.id == nil {
		finish(nil)
		return
	}
	c.closeErr = errors.Join(c.closeErr, c.closeWindows())
	c.opts.Shared.part(c)
	c.leaving.Store(true)
	c.sh.closeID(c.id, finish) // destroys the queue pair too, so that the device no longer uses its memory
}
