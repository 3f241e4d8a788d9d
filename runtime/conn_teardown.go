package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// flushBound is the time that the device has to flush a queue pair in ERR. Some devices flush a
// queue pair only when it is destroyed, so after flushBound the queue pair is destroyed.
const flushBound = time.Second

// Conn.fail ends a connection because of a failure. It moves the queue pair of an open connection
// to ERR. Outstanding requests are then flushed and complete with the cause, and arrived messages
// can still be received. Holder only.
func (c *Conn) fail(cause error) {
	_, panicked := errors.AsType[*PanicError](cause) // the value of a panic may be ErrDeviceRemoved of another device
	if !panicked && errors.Is(cause, verbs.ErrDeviceRemoved) {
		c.rt.deviceGone()
		c.failRemoved()
		return
	}
	switch c.state {
	case connConnecting:
		c.giveUp(cause)
	case connOpen, connLeft:
		c.setCause(explained(c.rt.dev, cause))
		c.state = connFailed
		c.disconnectQP()
		// If the device does not flush the requests, destroy ends the operations.
		c.within(flushBound, func() {
			if !c.drained {
				c.destroy(nil)
			}
		})
	case connDraining: // Close waits for outstanding sends, but these will not complete: end the wait
		c.disconnect()
	}
}

// explained adds the device's explanation to cause, if the device has one.
func explained(dev verbs.Context, cause error) error {
	wc, completed := errors.AsType[*verbs.WCError](cause)
	e, knows := dev.(verbs.Explainer)
	if !completed || !knows {
		return cause
	}
	if why := e.Explain(wc.Status); why != "" {
		return fmt.Errorf("%w (%s)", cause, why)
	}
	return cause
}

// ackGrace is how long the connection waits for acknowledgments after the peer has disconnected.
// Usually the peer's queue pair is in ERR by then, and sends no more acknowledgments.
// Acknowledgments that it sent before may be delayed by reordering in the network or by a busy
// machine, but by much less than ackGrace. If an acknowledgment was lost and the peer's queue pair
// still answers, the device sends the request again after an ACK timeout. So ackGrace exceeds the
// ACK timeout of the software RNIC (134 ms). ackGrace is short because operations that the peer
// never acknowledges end only after ackGrace.
const ackGrace = 200 * time.Millisecond

// peerLeft handles DISCONNECTED. Holder only.
//
//   - An open connection refuses new operations. Its queue pair continues, because acknowledgments
//     may still arrive. When no send is outstanding, and at the latest after ackGrace, this side
//     disconnects, too (Conn.fail).
//   - If Close waits for outstanding sends, the wait ends at the latest after ackGrace.
//   - If Close or Abort has disconnected this side already, nothing happens.
//   - In other states Conn.fail is called at once.
func (c *Conn) peerLeft() {
	over := func() { c.fail(ErrPeerClosed) }
	switch c.state {
	case connOpen:
		c.setCause(ErrPeerClosed)
		c.state = connLeft
		c.refuseOps()
		c.q.SendsIdle(over)
	case connDraining: // Close has called SendsIdle; Abort does not wait for sends
	default:
		over()
	}
	if c.state == connLeft || c.state == connDraining && !c.disconnecting {
		c.within(ackGrace, over)
	}
}

// Conn.within sets the connection's only timer to call fn after the time d. This cancels the call
// for which the timer was set before, because each step of the teardown has its own limit.
// Conn.destroy stops the timer, because a running timer keeps the connection in memory. Holder
// only.
func (c *Conn) within(d time.Duration, fn func()) {
	c.sh.r.StopTimer(c.timer)
	c.timer = c.sh.r.After(d, fn)
}

// causeBound is how long a connection whose queue pair was found in ERR waits for the event that
// gives the reason: DISCONNECTED, or an event of the device. The event is queued when the queue
// pair changes its state, and arrives within microseconds.
const causeBound = 50 * time.Millisecond

// Conn.flushed handles the first flushed completion, and LAST_WQE_REACHED, if the connection has no
// cause yet. Holder only.
func (c *Conn) flushed() {
	c.sh.r.After(causeBound, func() {
		if c.state == connOpen {
			c.fail(fmt.Errorf("%w: it was moved to ERR without a failed completion", ErrQueuePair))
		}
	})
}

// disconnectQP disconnects this side, which moves the queue pair to ERR. The device then flushes
// all requests.
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

// onDrained is called when no request is outstanding any more. Receivers get the messages that have
// arrived; when there are no more messages, they get the cause. A goroutine that checked the
// connection before the failure may still submit a request. onDrained seals the queue, so that such
// a request is not posted.
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

// closeBound is how long Close waits for the reactor after the end of the context: twice
// flushBound, and a margin for a busy machine.
const closeBound = 2*flushBound + 500*time.Millisecond

// Close closes the connection gracefully. It refuses new operations, and waits until no send is
// outstanding or ctx ends. Then it disconnects and frees all resources. Operations that are still
// outstanding then complete with an error. The caller keeps messages that it has not released.
// Close is idempotent; every call waits until the connection is closed.
//
// If the peer has disconnected, Close waits at most 200 ms for acknowledgments.
//
// After the end of ctx, Close waits only for the connection's reactor, and for the kernel to
// destroy the queue pair. If this wait exceeds some seconds, Close returns ErrReactorBusy, and the
// connection is closed later.
func (c *Conn) Close(ctx context.Context) error { return c.close(ctx, ErrConnClosed) }

// Conn.close is Close. The argument cause becomes the connection's cause if it has none.
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
	if bound, ok := c.leaving.waitBound(c.closed); !ok { // Abort has ended all waits for the peer
		return fmt.Errorf("closing the connection to %v: %w within %v", c.remote, ErrReactorBusy, bound)
	}
	return c.closeErr
}

// leaveBound is how much longer than closeBound Close waits if the kernel is destroying the queue
// pair. The kernel waits until the queue pair's packets have left the network stack. A packet to a
// neighbor that does not answer leaves only after three ARP requests, one second apart (Linux
// ip-sysctl, neigh/default/ucast_solicit and retrans_time_ms). One more second is a margin for a
// busy machine. See closingID.
const leaveBound = 3*time.Second + time.Second

// leaving is set when the destruction of the queue pair begins. The holder sets it, and Close
// reads it. It publishes nothing else.
type leaving struct{ uatomic.Bool }

// waitBound waits at most closeBound until the channel closed is closed. If l is set at the end of
// this time, it waits at most leaveBound longer. It returns the total limit, and reports whether
// the channel was closed.
func (l *leaving) waitBound(closed <-chan struct{}) (bound time.Duration, ok bool) {
	if waitBound(closed, closeBound) {
		return closeBound, true
	}
	if !l.Load() {
		return closeBound, false
	}
	return closeBound + leaveBound, waitBound(closed, leaveBound)
}

// waitBound waits at most d until ch is closed. It reports whether ch was closed.
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

// Conn.end starts the teardown. If hard is true, the teardown does not wait for outstanding sends.
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

// disconnect disconnects this side. When all requests are flushed, and at the latest after
// flushBound, it destroys the connection.
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
	if c.cause.Load() != nil { // before closeWindows seals the queue: later requests must complete with the cause
		c.refuseOps()
	}
	finish := func(err error) {
		// Close windows that the device refused to close while the queue pair existed.
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
		c.takeBack() // frees messages of discarded futures
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
	c.sh.closeID(c.id, finish) // also destroys the queue pair: then the device no longer uses the queue's memory
}
