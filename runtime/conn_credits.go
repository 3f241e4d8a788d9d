package runtime

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// The diagram shows the path of a credit, from a released message back to the peer. A frame is a
// message or a credit update, with its header (package proto).
//
//	         Release              grant                    take, at the peer
//	(held) ──────────> unreturned ──────> granted, in flight ───────────────> usable
//	                        ^                │ the frame was not posted
//	                        └────────────────┘ ungrant
//
// The peer sends to a receive only after a frame has returned the credit of this receive. So a
// released receive may stay unposted until that frame is sent: reactor.Queue.PostRecvLater posts
// the receive in the pass that posts the frame, before the frame. One doorbell then posts all
// receives that were released since the last frame. If this side sends no messages, the frames are
// credit updates, and these receives are about half of all receives.
//
// Every message to the peer carries the unreturned credits. If there is no message, a credit
// update (a frame without payload) carries them. An update is sent in two cases:
//
//	many       at least half of all credits are unreturned
//	starving   a receiver waits at this end, no message has arrived, and the peer cannot
//	           send a message, because it has used all granted credits. Each credit is
//	           then unreturned, or belongs to a message that the application holds. (If
//	           the application held no message, all credits would be unreturned, which
//	           is case "many".)
//
// A "many" update is sent by a goroutine that receives (Conn.help), in any pass of the reactor, or by the
// loop after updateDelay.
//
// Each update takes one of the peer's controlRecvs receives. An update is in flight from the time
// when it is sent until the peer has processed it (Conn.take). At most two updates are in flight:
//
//   - A starving update is sent when the peer has used all granted credits, including the credits
//     of all earlier updates. So the peer has processed the earlier updates, and none of them is in
//     flight. A starving update is therefore the oldest update in flight.
//   - Each credit is in at most one update in flight. A "many" update carries at least half of all
//     credits, and a starving update carries at least one credit. So at most two "many" updates are
//     in flight, or one starving update and one "many" update.
//
// The third receive is needed for a short time: the peer has processed an update, but has not yet
// posted the receive of this update again.

// controlRecvs is the number of receives for the peer's credit updates, in addition to one receive
// for each credit.
const controlRecvs = 3

// controlSends is the maximum number of outstanding credit updates. A further update waits until
// one of these completes (Conn.creditDue).
const controlSends = 2

// updateAt returns the number of unreturned credits from which on a "many" update is due: half of
// all credits, rounded up.
func (c *Conn) updateAt() int { return (c.opts.RecvCredits + 1) / 2 }

// returnCredits adds n unreturned credits, and schedules sendCreditUpdate if a credit update may be
// due. Any goroutine may call it.
func (c *Conn) returnCredits(n uint32) {
	// Order: this goroutine writes c.unreturned, then reads c.starving and c.updateDue. Conn.match
	// writes c.starving, then reads c.unreturned (in sendCreditUpdate); sendCreditUpdate writes
	// c.updateDue, then reads c.unreturned. So at least one of the two goroutines sees the write of
	// the other.
	switch back := c.unreturned.Add(n); {
	case back > 0 && c.starving.Load():
		c.sh.r.Schedule(&c.creditTask, false)
	case int(back) >= c.updateAt() && !c.updateDue.Load() && c.updateDue.CompareAndSwap(false, true):
		// A goroutine that releases a message usually receives the next one soon, and then sends the
		// update itself (Conn.help). When each update woke the loop, a million messages took 41,000
		// wake-ups of the loops; now they take 156. If no goroutine receives, updateTimer wakes
		// the loop.
		quiet := c.sh.r.Driver() != nil
		c.sh.r.Schedule(&c.creditTask, quiet)
		if !quiet {
			return
		}
		if t := c.updateTimer.Load(); t != nil {
			t.Reset(updateDelay)
		} else { // a second goroutine may also get here; then both timers fire, which does no harm
			c.updateTimer.Store(time.AfterFunc(updateDelay, c.updateLate))
		}
	}
}

// updateDelay bounds how long a "many" update is delayed if no goroutine receives. It is less than a
// wake-up between goroutines that are locked to threads (70 to 100 µs, ADR 1), which the peer may need anyway.
const updateDelay = 50 * time.Microsecond

// help sends a credit update that is due, if the turn is free. A goroutine that receives calls it.
func (c *Conn) help() {
	if c.updateDue.Load() {
		c.sh.r.TryPass()
	}
}

// updateLate is the function of Conn.updateTimer.
func (c *Conn) updateLate() {
	if c.updateDue.Load() {
		c.sh.r.Wake()
	}
}

// grant takes all unreturned credits for a frame to the peer, and returns their number. It adds
// them to c.granted before the frame is posted, because the peer may use the credits as soon as the
// frame is posted.
func (c *Conn) grant() uint32 {
	if c.unreturned.Load() == 0 { // the usual case of a side that only sends
		return 0
	}
	back := c.unreturned.Swap(0)
	if back > 0 {
		c.granted.Add(uint64(back))
	}
	return back
}

// ungrant undoes grant for a frame that was not posted.
func (c *Conn) ungrant(back uint32) {
	if back > 0 {
		c.granted.Add(-uint64(back))
		c.returnCredits(back)
	}
}

// starved reports whether a receiver waits, no message has arrived, and the peer has used all
// granted credits. Holder only.
func (c *Conn) starved() bool {
	return len(c.recvWaiters) > 0 && !c.hasMessages() && c.granted.Load() == c.arrivals
}

// sendCreditUpdate sends a credit update if one is due. It is the function of Conn.creditTask.
// Holder only.
func (c *Conn) sendCreditUpdate() {
	if c.updateDue.Load() {
		c.updateDue.Store(false)
	}
	if c.state != connOpen && c.state != connConnecting {
		return
	}
	if n := int(c.unreturned.Load()); n == 0 || n < c.updateAt() && !c.starved() {
		return // since the task was scheduled, a message has returned credits
	}
	var head [frameSize]byte
	back := c.grant()
	if back == 0 {
		return
	}
	proto.Frame{Kind: proto.Credit, Credits: back}.Encode(&head)
	if err := c.q.PostControl(&reactor.Send{Opcode: verbs.WRSend, Sink: (*connSink)(c)}, reactor.Payload{Header: head[:]}); err != nil {
		c.creditDue = true // Conn.received calls sendCreditUpdate again when an earlier update completes
		c.granted.Add(-uint64(back))
		c.unreturned.Add(back)
	}
}

func errCredits(n uint32) error {
	return fmt.Errorf("%w: it returned %d credits, more than it has used", ErrPeerProtocol, n)
}

// creditFor acquires a credit if op uses a receive of the peer. If no credit is free and m is
// NonBlock, creditFor returns ErrNoCredit. In every other mode, it waits until it gets a credit,
// asked ends or the connection ends. The argument asked is the caller's context, reduced to the
// Done channel.
func (c *Conn) creditFor(asked reactor.DoneContext, op verbs.WROpcode, m reactor.SubmitMode) error {
	if c.credits == nil || op == verbs.WRRDMAWrite || op == verbs.WRRDMARead {
		return nil
	}
	if c.takeCredits(1) == 1 {
		return nil
	}
	if m == reactor.NonBlock {
		if cause := c.Err(); cause != nil {
			return cause
		}
		return ErrNoCredit
	}
	return c.waitCredit(asked)
}

// creditBack undoes creditFor for a request that was not posted.
func (c *Conn) creditBack(op verbs.WROpcode) {
	if c.credits != nil && op != verbs.WRRDMAWrite && op != verbs.WRRDMARead {
		// Restore returns false only if the peer has returned more credits than this side has used.
		// Ignore that here: Conn.take fails the connection if the peer does so again.
		c.credits.Restore(1)
		if c.creditLine.Load() > 0 {
			c.sh.r.Schedule(&c.creditWaitTask, false)
		}
	}
}
