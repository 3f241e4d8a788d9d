package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// flushBound is how long the device is given to flush a queue pair in ERR
// before it is destroyed: some flush only then.
const flushBound = time.Second

// fail ends an open connection: the queue pair goes to ERR, what is out is
// flushed and completes with the cause, what has arrived can still be received.
// Holder only.
func (c *Conn) fail(cause error) {
	_, panicked := errors.AsType[*PanicError](cause) // of a sink: what its value says is not of our device
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
		c.stop()
		// A device that flushes only what is destroyed would keep the operations for
		// ever.
		c.within(flushBound, func() {
			if !c.drained {
				c.destroy(nil)
			}
		})
	case connDraining: // what it waits for will not come
		c.disconnect()
	}
}

// ackGrace is how long sends that are out when the peer disconnects may still be
// acknowledged. The peer's device acknowledges before the peer disconnects, or never: its
// queue pair is in ERR then. So an acknowledgement is late only by what the network
// reorders and a busy machine delays: well below this, with room for one ACK timeout of
// the software RNIC (67 ms) where an acknowledgement was lost and the queue pair of the
// peer still answers. It is short for whoever waits for operations that a peer did not
// take.
const ackGrace = 100 * time.Millisecond

// peerLeft takes DISCONNECTED. An open connection takes no more operations, but the queue
// pair stays as it is while acknowledgements may come: until no send is out, at most
// ackGrace, and not at all if none is. Then the connection fails, and stop answers the
// peer. Close waits for the same; whatever else ends a connection waits for nothing. Holder
// only.
func (c *Conn) peerLeft() {
	over := func() { c.fail(ErrPeerClosed) }
	switch c.state {
	case connOpen:
		c.setCause(ErrPeerClosed)
		c.state = connLeft
		c.refuse()
		c.q.SendsIdle(over)
	case connDraining: // Close has asked for the same
	default:
		over()
	}
	if c.state == connLeft || c.state == connDraining && !c.disconnecting {
		c.within(ackGrace, over)
	}
}

// within has the connection's one timer call fn, in place of what it was to call: each step
// of the end has its own bound, and a connection that is gone has no timer that would keep
// it. Holder only.
func (c *Conn) within(d time.Duration, fn func()) {
	c.sh.r.StopTimer(c.timer)
	c.timer = c.sh.r.After(d, fn)
}

// causeBound is how long a connection whose queue pair was found in ERR waits for
// the reason. The peer's disconnecting and the device's events are queued when
// the queue pair moves, so they are microseconds behind.
const causeBound = 50 * time.Millisecond

// flushed is called at the first flush of an open connection that nobody has
// explained. Holder only.
func (c *Conn) flushed() {
	c.sh.r.After(causeBound, func() {
		if c.state == connOpen {
			c.fail(fmt.Errorf("%w: it was moved to ERR, and nobody said why", ErrQueuePair))
		}
	})
}

// stop makes the device give everything back.
func (c *Conn) stop() {
	c.refuse()
	if err := c.id.Disconnect(); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) { // that is about to be told
		c.closeErr = errors.Join(c.closeErr, err)
	}
	c.q.Idle(c.onDrained)
}

// refuse has the connection take no more operations.
func (c *Conn) refuse() {
	c.q.Fail(c.cause.Load())
	if c.credits != nil {
		c.credits.Close()
	}
}

// onDrained is called when nothing is out any more: those who wait for a message get what
// has arrived, and then the cause. Who was between its checks and the queue when the
// connection failed may submit yet: the device does not get that.
func (c *Conn) onDrained() {
	c.drained = true
	c.q.Seal()
	c.match()
	for _, home := range c.homes {
		close(home)
	}
	c.homes = nil
	c.report(false)
}

// closeBound is how long Close waits after its context has ended: twice what
// the device is given to flush, and what closing takes on a busy machine.
const closeBound = 2*flushBound + 500*time.Millisecond

// Close ends the connection: it refuses new operations, waits for those under
// way until ctx ends, disconnects, and gives everything back. Operations still
// under way then complete with an error. Messages not yet released stay
// the caller's. It is idempotent; every call waits for the end.
//
// Once the peer has disconnected it waits for acknowledgements 100 ms at most.
//
// After ctx has ended it waits for nothing but its reactor, and for the kernel to let the
// queue pair go, some seconds at most: ErrReactorBusy, and the connection closes later.
func (c *Conn) Close(ctx context.Context) error { return c.close(ctx, ErrConnClosed) }

// close is Close; cause is why the connection takes no more operations.
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
	if bound, ok := c.leaving.waitBound(c.closed); !ok { // nothing waits for the peer any more
		return fmt.Errorf("closing the connection to %v: %w within %v", c.remote, ErrReactorBusy, bound)
	}
	return c.closeErr
}

// leaveBound is how much longer Close waits while the kernel destroys the queue pair:
// for as long as a packet waits in the network stack for a neighbour that does not
// answer, three questions a second apart (Linux ip-sysctl, neigh/default/ucast_solicit and
// retrans_time_ms), and a second for a busy machine. See closingID.
const leaveBound = 3*time.Second + time.Second

// leaving tells whoever waits for the end that the kernel has begun to destroy the queue
// pair. Set by the holder, once; read by Close. It publishes nothing else.
type leaving struct{ uatomic.Bool }

// waitBound waits for closed, at most closeBound, or leaveBound more when the reactor
// has done its part. It returns how long it would have waited at most, and whether closed
// came.
func (l *leaving) waitBound(closed <-chan struct{}) (bound time.Duration, ok bool) {
	if waitBound(closed, closeBound) {
		return closeBound, true
	}
	if !l.Load() {
		return closeBound, false
	}
	return closeBound + leaveBound, waitBound(closed, leaveBound)
}

// waitBound waits for ch, at most d, and tells whether it came.
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

// Abort is Close that waits for nothing: operations under way complete with an
// error, soon.
func (c *Conn) Abort() { c.end(true) }

// end starts the end; hard is without waiting for what is under way.
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

// disconnect disconnects and, when everything is flushed, destroys.
func (c *Conn) disconnect() {
	if c.state == connGone || c.disconnecting {
		return
	}
	c.disconnecting = true
	if c.lost { // nothing is out that the device would give back
		c.destroy(nil)
		return
	}
	if c.state == connDraining {
		c.stop()
	}
	c.within(flushBound, func() { c.destroy(nil) })
	c.q.Idle(func() { c.whenTaken(func() { c.destroy(nil) }) })
}

// destroy gives everything back; done (may be nil) is called at the end. Holder
// only.
func (c *Conn) destroy(done func()) {
	if c.state == connGone {
		return
	}
	c.state = connGone
	c.sh.r.StopTimer(c.timer)
	if c.cause.Load() != nil { // what is sealed before it is posted ends with it
		c.refuse()
	}
	finish := func(err error) {
		// Windows that could not go before the queue pair get their second try.
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
		c.takeBack() // what was discarded before its owner could see the end
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
	c.sh.closeID(c.id, finish) // the queue pair goes with it: the device has no memory of ours any more
}
