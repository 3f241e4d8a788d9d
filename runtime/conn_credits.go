package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// The path of a credit, from a released message back to the peer:
//
//	         Release              grant                    take, at the peer
//	(held) ──────────> unreturned ──────> granted, in flight ───────────────> usable
//	                        ^                │ the frame was not posted
//	                        └────────────────┘ ungrant
//
// The peer cannot use a receive before it has its credit. So the receive is posted in one list
// with the frame that grants its credit (reactor.Queue.PostRecvLater), and one doorbell serves
// up to half of all receives.
//
// Messages carry credits. If no message goes to the peer, credits go in a credit update, which
// is sent in two cases:
//
//	many       half of all credits are unreturned
//	starving   a receiver waits here, no message has arrived, and the peer has used all
//	           granted credits: it can send nothing until it gets another. (This happens
//	           if the application holds messages; otherwise "many" applies soon.)
//
// An update uses one of the peer's controlRecvs. An update is in flight from its sending here
// until the peer takes it. At most two are in flight:
//
//   - A starving update is sent when the peer has used all granted credits. The peer has then
//     taken every earlier frame, because it has used their credits. So no update is in flight
//     at that moment, and a starving update is always the oldest one in flight.
//   - A "many" update carries at least half of all credits, and the updates in flight never
//     carry more than all of them. So there are at most two "many" updates, or a starving
//     update, with at least one credit, and one "many" update.
//
// The third receive is for an update that the peer has taken without posting its receive again
// yet.

// controlRecvs is the number of receives beyond the credits, for the peer's credit updates.
const controlRecvs = 3

// controlSends is the maximum number of outstanding credit updates.
const controlSends = 2

// updateAt returns the number of unreturned credits that triggers a credit update: half of
// all.
func (c *Conn) updateAt() int { return (c.opts.RecvCredits + 1) / 2 }

// returnCredits adds n unreturned credits, and schedules a credit update if one may be due.
// Any goroutine.
func (c *Conn) returnCredits(n uint32) {
	// returnCredits writes unreturned, then reads starving. match writes starving, then reads
	// unreturned (in sendCreditUpdate). So at least one of them sees the other's write.
	if back := c.unreturned.Add(n); int(back) >= c.updateAt() || back > 0 && c.starving.Load() {
		c.sh.r.Schedule(&c.creditTask, false)
	}
}

// grant takes all unreturned credits for a frame to the peer. It adds them to granted before
// the frame is posted, because the peer may use them immediately afterwards.
func (c *Conn) grant() uint32 {
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

// starved reports whether a receiver waits and the peer has no credit left. Holder only.
func (c *Conn) starved() bool {
	return len(c.recvWaiters) > 0 && len(c.arrived) == 0 && c.granted.Load() == c.arrivals
}

// sendCreditUpdate sends a credit update if one is due. It is a task: holder only.
func (c *Conn) sendCreditUpdate() {
	if c.state != connOpen && c.state != connConnecting {
		return
	}
	if n := int(c.unreturned.Load()); n == 0 || n < c.updateAt() && !c.starved() {
		return // a message carried them
	}
	var head [frameSize]byte
	back := c.grant()
	if back == 0 {
		return
	}
	proto.Frame{Kind: proto.Credit, Credits: back}.Encode(&head)
	if err := c.q.PostControl(&reactor.Send{Opcode: verbs.WRSend, Sink: (*connSink)(c)}, reactor.Payload{Header: head[:]}); err != nil {
		c.creditDue = true // the completion of an earlier update sends this one
		c.granted.Add(-uint64(back))
		c.unreturned.Add(back)
	}
}

func errCredits(n uint32) error {
	return fmt.Errorf("%w: it gives back %d receives that it does not have", ErrPeerProtocol, n)
}

// creditFor acquires a credit if op uses a receive of the peer. If none is free, it returns
// ErrNoCredit in mode NonBlock; in other modes it waits for one until asked is closed.
func (c *Conn) creditFor(asked reactor.DoneContext, op verbs.WROpcode, m reactor.SubmitMode) error {
	if c.credits == nil || op == verbs.WRRDMAWrite || op == verbs.WRRDMARead {
		return nil
	}
	if c.credits.TryAcquire() {
		return nil
	}
	if m == reactor.NonBlock {
		if cause := c.Err(); cause != nil {
			return cause
		}
		return ErrNoCredit
	}
	c.sh.r.Wake() // post requests submitted without a wake-up: the peer's credit may depend on them
	if err := c.credits.Acquire(asked); err != nil {
		if cause := c.Err(); cause != nil {
			return cause
		}
		if errors.Is(err, ring.ErrDone) {
			err = asked.Err()
		}
		return fmt.Errorf("waiting for one of the peer's %d receives: %w", c.credits.Cap(), err)
	}
	return nil
}

// creditBack undoes creditFor for a request that was not posted.
func (c *Conn) creditBack(op verbs.WROpcode) {
	if c.credits != nil && op != verbs.WRRDMAWrite && op != verbs.WRRDMARead {
		c.credits.Restore(1) // false: the peer sent a credit too many; the next one that it sends fails the connection
	}
}
