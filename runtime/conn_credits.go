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
//	                     ^  ^                │ the frame was not posted
//	 the window grows ───┘  └────────────────┘ unframe
//
// The peer sends to a receive only after a frame has returned the credit of this receive. So a
// released receive may stay unposted until that frame is sent: the pass that posts the frame posts the
// receive before the frame. One doorbell then posts all receives that were released since the last frame.
//
// Every message to the peer carries the unreturned credits. If there is no message, a credit
// update (a frame without payload) carries them. An update is sent in three cases:
//
//	many       at least half of the window is unreturned
//	asked      a message says that it used the peer's last credit (proto.Frame.More), or
//	           the peer has used all granted credits
//	starving   a receiver waits at this end and no message has arrived, or a Call waits for
//	           its answer, and the peer cannot send a message, because it has used all
//	           granted credits. Each credit is then unreturned, or belongs to a message
//	           that the application holds or has not received. (If there were none of
//	           these, all credits would be unreturned, which is case "many".)
//
// A "many" update is sent by a goroutine that receives (Conn.help), in any pass of the reactor, or by the
// loop after updateDelay.
//
// An update is in flight from the time when it is sent until the peer has processed it (Conn.takeControl).
// At most one is in flight: the next update is sent only when a message has arrived that used a credit of
// the last update or of a later frame (Conn.updateMark), or when the peer has used all credits. The peer
// posts its receive again before it uses such a credit. So one receive is enough for updates.

// controlRecvs is the number of receives in addition to one for each credit: one for the peer's credit update, and
// one for its Recall.
const controlRecvs = 2

// controlSends is the maximum number of outstanding frames without payload: credit updates, and recalls
// and their answers. A further one waits until one of these completes (Conn.creditDue). READs of large
// messages and their answers have maxLarge more.
const controlSends = 2

// updateAt returns the number of unreturned credits from which on a "many" update is due: half of
// the window, without the credits to keep, rounded up.
func (c *Conn) updateAt() int { return (int(c.window.Load()) - int(c.ledger.keep.Load()) + 1) / 2 }

// returnCredits adds n unreturned credits, and schedules sendCreditUpdate if a credit update may be
// due. Any goroutine may call it.
func (c *Conn) returnCredits(n uint32) {
	// Order: this goroutine writes c.ledger, then reads c.starving and c.updateDue. Conn.match and
	// Conn.update write c.starving, then read c.ledger (in update); update writes
	// c.updateDue, then reads c.ledger. So at least one of the two goroutines sees the write of
	// the other.
	switch back, over := c.ledger.add(n); {
	case over:
		if c.pool != nil {
			c.pool.free.Add(int64(n))
		}
	case c.starving.Load():
		c.sh.r.Schedule(&c.creditTask, false)
	case back >= c.updateAt() && !c.updateDue.Load() && c.updateDue.CompareAndSwap(false, true):
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

// frame returns a frame to the peer that carries all unreturned credits and the wish for more. The credits
// are granted before the frame is posted, because the peer may use them as soon as it is.
func (c *Conn) frame(k proto.Kind, length int) proto.Frame {
	return proto.Frame{Kind: k, Credits: c.ledger.take(), Length: uint32(length), More: c.credits != nil && c.credits.wanted()}
}

// unframe undoes frame for a frame that was not posted.
func (c *Conn) unframe(f proto.Frame) {
	if f.More {
		c.credits.short.Store(true)
	}
	if f.Credits > 0 {
		c.ledger.untake(f.Credits)
		c.returnCredits(0)
	}
}

// starved reports whether a receiver waits and no message has arrived, or a Call waits for its answer, and the
// peer has used all granted credits. Holder only.
func (c *Conn) starved() bool {
	return (len(c.recvWaiters) > 0 && !c.hasMessages() || c.calls.open > 0) && c.uncovered()
}

// sendCreditUpdate sends a credit update if one is due. It is the function of Conn.creditTask.
// Holder only.
func (c *Conn) sendCreditUpdate() { c.update(false) }

// update is sendCreditUpdate. If asked is set, the peer has asked for credits when it had none.
func (c *Conn) update(asked bool) {
	if c.updateDue.Load() {
		c.updateDue.Store(false)
	}
	if c.calls.open > 0 || c.starving.Load() {
		c.noteStarving()
	}
	if c.state != connOpen && c.state != connConnecting {
		return
	}
	if n := c.ledger.grantable(); n == 0 || n < c.updateAt() && !asked && !c.starved() {
		return // since the task was scheduled, a message has returned credits
	}
	if c.updateHeld = c.updateSent && int32(uint32(c.arrivals)-c.updateMark) <= 0 && !c.uncovered(); c.updateHeld {
		return // take calls update again
	}
	f := c.frame(proto.Credit, 0)
	if f.Credits == 0 { // meanwhile a message has returned the credits
		c.unframe(f)
	} else if c.postFrame(f) {
		// After the push, so that the mark covers each frame that may be ahead of the update.
		c.updateSent, c.updateMark = true, c.ledger.granted()-f.Credits
	}
}

// postFrame posts a frame without payload. If too many are outstanding, it returns false, and
// Conn.received sends the frame when one of them completes. Holder only.
func (c *Conn) postFrame(f proto.Frame) bool {
	return c.postFrameAs(f, reactor.Send{Opcode: verbs.WRSend})
}

// postFrameAs is postFrame with s, a SEND of any kind.
func (c *Conn) postFrameAs(f proto.Frame, s reactor.Send) bool {
	var head [frameSize]byte
	f.Encode(&head)
	s.Sink = (*connSink)(c)
	err := c.q.PostControl(&s, reactor.Payload{Header: head[:]})
	if err != nil {
		c.creditDue = true
		if f.More {
			c.credits.short.Store(true)
		}
		c.ledger.untake(f.Credits)
	}
	return err == nil
}

func errCredits(n uint32) error {
	return fmt.Errorf("%w: it granted %d credits, more than it has announced", ErrPeerProtocol, n)
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
	if m&reactor.NonBlock != 0 {
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
		c.creditsBack(1)
	}
}

// creditsBack gives n credits back that no message has used. Any goroutine may call it.
func (c *Conn) creditsBack(n uint32) {
	// restore returns false only if the peer has granted more credits than this end has used.
	// Ignore that here: Conn.take fails the connection if the peer does so again.
	c.credits.restore(n)
	if c.creditLine.Load() > 0 {
		c.sh.r.Schedule(&c.creditWaitTask, false)
	}
}
