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

// fail ends a connection because of a failure. It moves the queue pair of an open connection to
// ERR. Outstanding requests are then flushed and complete with the cause, and arrived messages can
// still be received. Holder only.
func (c *Conn) fail(cause error) {
	_, panicked := errors.AsType[*PanicError](cause) // a panic's value may be the ErrDeviceRemoved of another device
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
		// A device that does not flush the requests would keep the operations forever.
		c.within(flushBound, func() {
			if !c.drained {
				c.destroy(nil)
			}
		})
	case connDraining: // end Close's wait for outstanding sends, which will not complete
		c.disconnect()
	}
}

// ackGrace is how long the connection waits for acknowledgments after the peer has disconnected.
// The peer's queue pair is then usually in ERR and sends no more acknowledgments. Earlier ones may
// be delayed by reordering in the network or by a busy machine, but by much less than ackGrace.
// If an acknowledgment was lost and the peer's queue pair still answers, the device must send the
// request again: so ackGrace exceeds one ACK timeout of the software RNIC (67 ms). ackGrace is
// short, because operations that the peer did not take end only when it has passed.
const ackGrace = 100 * time.Millisecond

// peerLeft handles DISCONNECTED. It makes an open connection refuse new operations, and lets the
// queue pair continue, because acknowledgments may still arrive. When no send is outstanding, or
// after ackGrace, it calls fail, which disconnects this side. If Close is in progress, peerLeft
// limits Close's wait for outstanding sends to ackGrace. In other states it calls fail at once.
// Holder only.
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

// within has the connection's only timer call fn after d. It cancels the timer's previous call,
// because each step of the teardown has its own bound. A running timer keeps the connection in
// memory, so the function destroy stops it. Holder only.
func (c *Conn) within(d time.Duration, fn func()) {
	c.sh.r.StopTimer(c.timer)
	c.timer = c.sh.r.After(d, fn)
}

// causeBound is how long a connection whose queue pair was found in ERR waits for the event that
// gives the reason: DISCONNECTED, or an event of the device. The event is queued when the queue
// pair changes its state, and arrives within microseconds.
const causeBound = 50 * time.Millisecond

// flushed handles the first flushed completion, if the connection has no cause yet. Holder only.
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

// onDrained is called when no request is outstanding any more. Receivers get the arrived messages,
// then the cause. A goroutine that checked the connection before the failure may still submit a
// request. onDrained seals the queue, so that such a request is not posted.
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

// closeBound is how long Close waits for the reactor after its context has ended: twice
// flushBound, and a margin for a busy machine.
const closeBound = 2*flushBound + 500*time.Millisecond

// Close closes the connection gracefully. It refuses new operations, waits until no send is
// outstanding or ctx ends, disconnects, and frees all resources. Operations that are still
// outstanding when it disconnects complete with an error. The caller keeps messages that it has
// not released. Close is idempotent; every call waits until the connection is closed.
//
// If the peer has disconnected, Close waits at most 100 ms for acknowledgments.
//
// After the end of ctx, Close waits only for the connection's reactor, and for the kernel to
// destroy the queue pair. If this wait exceeds some seconds, Close returns ErrReactorBusy, and the
// connection is closed later.
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
	if bound, ok := c.leaving.waitBound(c.closed); !ok { // Abort has ended all waits for the peer
		return fmt.Errorf("closing the connection to %v: %w within %v", c.remote, ErrReactorBusy, bound)
	}
	return c.closeErr
}

// leaveBound is how much longer Close waits while the kernel destroys the queue pair. The kernel
// waits until the queue pair's packets have left the network stack. A packet to a neighbor that
// does not answer stays there for three ARP requests, one second apart (Linux ip-sysctl,
// neigh/default/ucast_solicit and retrans_time_ms). One more second is a margin for a busy
// machine. See closingID.
const leaveBound = 3*time.Second + time.Second

// leaving is set when the destruction of the queue pair begins. The holder sets it, and Close
// reads it. It publishes nothing else.
type leaving struct{ uatomic.Bool }

// waitBound waits until the channel closed is closed, at most for closeBound. If l is set when
// closeBound has passed, it waits for leaveBound more. It returns the total limit, and reports
// whether the channel was closed.
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

// disconnect disconnects this side. It destroys the connection when all requests are flushed, at
// the latest after flushBound.
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
	if c.cause.Load() != nil { // before the queue is sealed: later requests then complete with the cause
		c.refuseOps()
	}
	finish := func(err error) {
		// Try again to close windows: the device may have refused it while the queue pair existed.
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
	c.sh.closeID(c.id, finish) // also destroys the queue pair; the device then no longer uses its memory
}
