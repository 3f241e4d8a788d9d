package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// Who is told what of the receives that came back:
//
//	         Release              grant                    take, at the peer
//	(held) ──────────> unreturned ──────> told, on the way ─────────────────> usable
//	                        ^                │ the frame was not posted
//	                        └────────────────┘ ungrant
//
// A receive is posted with the frame that tells it, in one list with all the frame tells
// (reactor.Queue.PostRecvLater): the peer uses none before, and one doorbell does for half
// of all.
//
// Credits ride on messages. When none goes the other way they are told by an
// update of their own, in two cases:
//
//	many     half of all are unreturned
//	hungry   somebody here waits for a message, none is here, and the peer has
//	         used up all it was told of: it can send nothing until it hears of
//	         more, be it one. (The application keeps messages; else there would
//	         soon be many.)
//
// An update takes one of the peer's controlRecvs. How many can be unseen, that
// is told here and not yet taken there? A hungry one is told when the peer has
// used up everything, the credits of every earlier frame included, so it has
// taken those: at that moment nothing is unseen, and a hungry update is the oldest
// of the unseen or not among them. What is unseen is at most all credits together;
// one of many carries at least half. So they are at most two: two of many, or
// a hungry one and one of many (two and one more credit would be more than all).
// The third receive is for one that the peer has taken and not posted again.

// controlRecvs are receives beyond the credits, for the peer's credit updates.
const controlRecvs = 3

// controlSends is how many credit updates may be on their way.
const controlSends = 2

// updateAt is how many receives are posted again before the peer is told
// without being asked: half of all.
func (c *Conn) updateAt() int { return (c.opts.RecvCredits + 1) / 2 }

// returnCredits counts n receives that the peer may use again, and sees to it that
// it hears of them. Any goroutine.
func (c *Conn) returnCredits(n uint32) {
	// Order: first the count, then hungry; match does it the other way round, so
	// one of the two sees both.
	if back := c.unreturned.Add(n); int(back) >= c.updateAt() || back > 0 && c.starving.Load() {
		c.sh.r.Schedule(&c.creditTask, false)
	}
}

// grant takes all that the peer was not told of, for a frame that tells it.
// Counted before the frame can go: what the peer sends for it finds it counted.
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

// starved tells whether the peer can send nothing and somebody waits for it.
// Holder only.
func (c *Conn) starved() bool {
	return len(c.recvWaiters) > 0 && len(c.arrived) == 0 && c.granted.Load() == c.arrivals
}

// sendCreditUpdate sends a credit update if one is due. It is a task: holder only.
func (c *Conn) sendCreditUpdate() {
	if c.state != connOpen && c.state != connConnecting {
		return
	}
	if n := int(c.unreturned.Load()); n == 0 || n < c.updateAt() && !c.starved() {
		return // a message took them along
	}
	var head [frameSize]byte
	back := c.grant()
	if back == 0 {
		return
	}
	proto.Frame{Kind: proto.Credit, Credits: back}.Encode(&head)
	if err := c.q.PostControl(&reactor.Send{Opcode: verbs.WRSend, Sink: (*connSink)(c)}, reactor.Payload{Header: head[:]}); err != nil {
		c.creditDue = true // told when an earlier update completes
		c.granted.Add(-uint64(back))
		c.unreturned.Add(back)
	}
}

func errCredits(n uint32) error {
	return fmt.Errorf("%w: it gives back %d receives that it does not have", ErrPeerProtocol, n)
}

// creditFor takes a credit if the peer spends a receive on op, waiting for one on asked.
func (c *Conn) creditFor(asked reactor.Asked, op verbs.WROpcode, m reactor.SubmitMode) error {
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
	c.sh.r.Wake() // what was submitted quietly, here or in a batch, may bring the credit
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

// creditBack undoes creditFor for what was not posted.
func (c *Conn) creditBack(op verbs.WROpcode) {
	if c.credits != nil && op != verbs.WRRDMAWrite && op != verbs.WRRDMARead {
		c.credits.Restore(1) // false: the peer gave it back unused, and is found out when it speaks again
	}
}
