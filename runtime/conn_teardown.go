package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// flushBound is how long the device may take to flush a queue pair in ERR. After flushBound the
// runtime destroys the queue pair, because some devices flush a queue pair only when it is
// destroyed.
const flushBound = time.Second

// Conn.fail ends a connection because of a failure. It moves the queue pair of an open connection
// to ERR. The device then flushes the outstanding requests, which complete with the cause. Messages
// that have arrived can still be received. Holder only.
func (c *Conn) fail(cause error) {
	// The value of a panic may be the ErrDeviceRemoved of another runtime's device.
	_, panicked := errors.AsType[*PanicError](cause)
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
		// If the device does not flush the requests, destroy ends the operations. If it only does not report
		// LAST_WQE_REACHED, the messages that have arrived are kept.
		c.within(flushBound, func() {
			switch {
			case c.drained:
			case c.idled:
				c.sh.r.Defer(func() { c.sh.r.Drain(); c.onDrained() })
			default:
				c.destroy(nil)
			}
		})
	case connDraining: // Close waits for outstanding sends, which will not complete any more: end this wait
		c.disconnect()
	}
}

// explained adds the device's explanation of the completion status to cause, if the device has an
// explanation.
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

// ackGrace is how long the connection waits for acknowledgments after it has received DISCONNECTED.
// Usually the peer's queue pair is in ERR when DISCONNECTED arrives, and sends no more
// acknowledgments. Earlier acknowledgments may be delayed by reordering in the network or by a busy
// machine, but by much less than ackGrace. If an acknowledgment was lost and the peer's queue pair
// still answers, the device sends the request again after an ACK timeout. So ackGrace exceeds the
// ACK timeout of the software RNIC (134 ms). ackGrace is short because an operation that the peer
// never acknowledges must wait for the end of ackGrace.
const ackGrace = 200 * time.Millisecond

// peerLeft handles DISCONNECTED. Holder only.
//
//   - An open connection refuses new operations. Its queue pair continues, because acknowledgments
//     may still arrive. When no send is outstanding, and at the latest after ackGrace, this side
//     disconnects, too (Conn.fail).
//   - If Close waits for outstanding sends, this wait ends at the latest after ackGrace.
//   - If Close or Abort has disconnected this side already, nothing happens.
//   - In other states Conn.fail is called at once.
func (c *Conn) peerLeft() {
	over := func() { c.fail(ErrPeerClosed) }
	switch c.state {
	case connOpen:
		c.setCause(ErrPeerClosed)
		c.state = connLeft
		c.refuseOps()
		c.reportMessages()
		c.q.SendsIdle(over)
	case connDraining: // Close has called SendsIdle already; Abort does not wait for sends
	case connConnecting: // fail with an error of the attempt: the program has no connection yet
		c.giveUp(errPeerGaveUp)
	default:
		over()
	}
	if c.state == connLeft || c.state == connDraining && !c.disconnecting {
		c.within(ackGrace, over)
	}
}

// Conn.within sets the timer of the connection to call fn after the time d. If the timer was
// already set to call another function, that call is canceled. So each step of the teardown
// replaces the time limit of the previous step. Conn.destroy stops the timer, because a running
// timer keeps the connection in memory. Holder only.
func (c *Conn) within(d time.Duration, fn func()) {
	c.sh.r.StopTimer(c.timer)
	c.timer = c.sh.r.After(d, fn)
}

// causeBound is how long a connection whose queue pair was found in ERR waits for the event that
// gives the reason: DISCONNECTED, or an asynchronous event of the device. The event is queued when
// the queue pair changes its state, and usually arrives within microseconds; the rest is a margin
// for a busy machine.
const causeBound = 50 * time.Millisecond

// Conn.flushed is called at the first flushed completion, and at LAST_WQE_REACHED, of a connection
// that has not failed. If no event fails the connection within causeBound, flushed fails it with
// ErrQueuePair. Holder only.
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
	c.command(lineStep, c.id.Disconnect, func(err error) {
		// Close does not return ErrDeviceRemoved, because an event reports the removal of the device. A
		// connection that is gone needs no Disconnect: its queue pair and its identifier are destroyed.
		if err != nil && !errors.Is(err, errNotBegun) && !errors.Is(err, verbs.ErrDeviceRemoved) {
			c.closeErr = errors.Join(c.closeErr, err)
		}
	})
	c.q.Idle(func() {
		c.idled = true
		if c.pool == nil {
			c.onDrained()
		} else { // messages may have arrived that are not polled yet
			c.afterLastWQE(c.onDrained)
		}
	})
}

// refuseOps makes the connection accept no more operations.
func (c *Conn) refuseOps() {
	c.q.Fail(c.cause.Load())
	c.endCredits()
}

// endCredits ends the waits for a credit. Holder only.
func (c *Conn) endCredits() {
	if c.credits != nil {
		c.credits.close()
		c.serveCredits()
	}
}

// onDrained is called when no request is outstanding any more. Waiting receivers get the messages
// that have arrived. The receivers for which there is no message get the cause. A goroutine that
// checked the connection before the failure may still submit a request. onDrained seals the queue,
// so that this request is not posted.
func (c *Conn) onDrained() {
	c.drained = true
	c.q.Seal()
	c.endLarge()
	c.endFetches()
	c.match()
	for _, home := range c.drainWaiters {
		close(home)
	}
	c.drainWaiters = nil
	c.report(false)
}

// closeBound is how long Close waits for the reactor after the end of the context. From then on the
// teardown needs at most flushBound; the rest of closeBound is a margin for a busy machine.
const closeBound = 2*flushBound + 500*time.Millisecond

// Close closes the connection gracefully. It refuses new operations, and waits until no send is
// outstanding and the peer has read all messages, or until ctx ends. It reads no more messages of the peer; if
// the peer waits for that, Close waits at most 200 ms (ackGrace). Then it disconnects and frees all resources. Operations that are still
// outstanding then complete with an error. Messages that the caller has received and not released
// stay valid. Close is idempotent; every call waits until the connection is closed.
//
// If the peer has disconnected, Close waits at most 200 ms (ackGrace) for acknowledgments.
//
// After the end of ctx, Close waits only for the connection's reactor, and for the kernel to
// destroy the queue pair. If this wait exceeds 2.5 s, or 6.5 s while the kernel is destroying the
// queue pair, Close returns ErrReactorBusy, and the connection is closed later.
func (c *Conn) Close(ctx context.Context) error { return c.close(ctx, ErrConnClosed) }

// Conn.close implements Close. If the connection has no cause yet, Conn.close sets the given cause.
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

// leaveBound is the additional time that Close waits after closeBound if the kernel is then
// destroying the queue pair. The kernel waits until the queue pair's packets have left the network
// stack. A packet to a neighbor that does not answer leaves the network stack only after three ARP
// requests, one second apart (Linux ip-sysctl, neigh/default/ucast_solicit and retrans_time_ms).
// One more second is a margin for a busy machine. See closingID.
const leaveBound = 3*time.Second + time.Second

// leaving is a flag. The holder sets it when the destruction of the queue pair begins, and Close
// reads it. The flag publishes no other memory.
type leaving struct{ uatomic.Bool }

// waitBound waits until the given channel is closed, at most closeBound. If the flag l is set when
// closeBound has passed, waitBound waits at most leaveBound longer. It returns the time limit that
// it applied, and whether the channel was closed.
func (l *leaving) waitBound(closed <-chan struct{}) (bound time.Duration, ok bool) {
	if waitBound(closed, closeBound) {
		return closeBound, true
	}
	if !l.Load() {
		return closeBound, false
	}
	return closeBound + leaveBound, waitBound(closed, leaveBound)
}

// waitBound waits until ch is closed, at most d. It reports whether ch was closed.
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

// Abort begins to close the connection, and does not wait. Outstanding operations soon complete
// with an error. Any goroutine may call Abort.
func (c *Conn) Abort() { c.end(true) }

// Conn.end starts the teardown. If hard is true, the teardown does not wait for outstanding sends.
func (c *Conn) end(hard bool) {
	c.setCause(ErrConnClosed)
	c.q.Fail(c.cause.Load())
	c.sh.r.Defer(func() {
		switch c.state {
		case connOpen, connLeft:
			c.state = connDraining
			c.endCredits()
			if !hard {
				c.whenSent(c.disconnect)
				c.boundDrain()
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

// disconnect disconnects this side. It destroys the connection when all requests are flushed, and
// at the latest after flushBound. Holder only.
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
	c.confirmed()
	c.attempt.ended()
	if c.cause.Load() != nil {
		// closeWindows seals the queue. Before that, refuseOps sets the error that the queue
		// returns for later requests.
		c.refuseOps()
	}
	finish := func(err error) {
		// Close windows that the device refused to close while the queue pair existed.
		c.closeErr = errors.Join(c.closeErr, err, c.closeWindows())
		if c.admitted {
			c.closeErr = errors.Join(c.closeErr, c.q.Release(c.endCause()))
		} else {
			c.freeRecvs(0)
			c.closeErr = errors.Join(c.closeErr, c.q.Discard())
		}
		c.onDrained()
		c.leavePool()
		c.freeMessages()
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
	// closeID also destroys the queue pair, so the device does not use the queue's memory when
	// finish runs.
	c.closeID(finish)
}
