package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// makeRecvs allocates the buffers of n receives. It waits for memory until asked ends.
func (c *Conn) makeRecvs(asked reactor.DoneContext, n int) error {
	c.recvs = newRecvSlots(n)
	for i := range uint32(n) {
		buf, err := c.rt.mem.allocOnNode(asked, c.sh.node, frameSize+c.opts.MessageSize)
		if err != nil {
			return err
		}
		s := c.recvs.make(i)
		s.i, s.buf = i, buf
		s.c.Store(c)
		s.sge[0] = buf.Slice().SGE()
		c.ownRecvs++
	}
	return nil
}

// freeRecvs frees the receives from the given one on, which are not posted.
func (c *Conn) freeRecvs(from int) {
	for i := from; i < c.ownRecvs; i++ {
		c.recvs.at(uint32(i)).buf.drop()
	}
}

func isGone(c *Conn) bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// connSink is the sink of the receives and the credit updates of a managed connection.
type connSink Conn

// Complete implements reactor.Sink.
func (s *connSink) Complete(_ SinkContext, r Result, err error) { (*Conn)(s).received(r, err) }

func (c *Conn) received(r Result, err error) {
	if r.Kind != reactor.KindRecv {
		if c.creditDue && err == nil {
			c.creditDue = false
			c.giveUpCredits()
			if c.fetches != nil {
				c.answerFetched()
				c.pump()
			}
			c.sendCreditUpdate()
		}
		c.failRefused(err)
		return
	}
	s := c.recvs.at(uint32(r.Tag))
	if err != nil {
		s.again()
		c.failRefused(err)
		return
	}
	c.take(s, r)
}

// violated ends the connection because its peer has violated the protocol. Holder only.
func (c *Conn) violated(err error) {
	if c.state == connConnecting {
		// Fail later: this method may run in Reactor.Flush, called by Conn.setup, which still
		// uses the connection.
		c.sh.r.Defer(func() { c.fail(err) })
		return
	}
	c.fail(err)
}

// failRefused fails the connection if err, which may be nil, is the error of a request that the device
// refused to post. The queue calls the function of OnFail for a failed completion, and the function of
// OnFlush for a flush without a known cause, but neither for such a request. Holder only.
func (c *Conn) failRefused(err error) {
	if err == nil || c.state > connOpen {
		return
	}
	if _, completed := errors.AsType[*verbs.WCError](err); !completed {
		c.sh.r.Defer(func() { c.fail(err) })
	}
}

// take processes the receive s, which has completed with the result r. If the peer has violated the
// protocol, it ends the connection.
func (c *Conn) take(s *recvSlot, r Result) {
	more := false // the peer has used its last credit
	var large *fetch
	s.imm, s.with = r.Imm, r.Flags&verbs.WCWithImm != 0
	if s.data = r.Opcode != verbs.WCRecvRDMAWithImm; !s.data {
		s.n, s.asked, s.answer = int(r.Bytes), 0, false
	} else {
		f, bad := proto.ParseFrame(s.buf.Bytes(), int(r.Bytes))
		if bad != nil {
			s.again()
			c.violated((*ProtocolError)(bad))
			return
		}
		if f.Kind != proto.Data && f.Kind != proto.Large {
			c.takeControl(s, f, &r)
			return
		}
		err := c.takeCreditsOf(f)
		s.n, more = int(f.Length), f.More
		s.asked, s.answer = f.Number, f.Answer
		if err == nil && f.Kind == proto.Large {
			large, err = c.offered(s)
		}
		if err != nil {
			s.again()
			c.violated(err)
			return
		}
	}
	if c.uncovered() {
		s.again()
		c.violated(errUncovered)
		return
	}
	if s.shut = nil; r.Flags&verbs.WCWithInv != 0 {
		if l := c.large.Load(); l != nil && l.byKey(r.Imm) != nil {
			s.again()
			c.violated(fmt.Errorf("%w: it has invalidated the window of a message without reading it", ErrPeerProtocol))
			return
		}
		s.shut = c.invalidated(r.Imm)
	}
	c.arrivals++ // a SEND or a WRITE with immediate data, which used a credit
	s.nth, s.large = c.arrivals, large
	c.arrive(s)
	// A WRITE with immediate data cannot say that it has used the peer's last credit.
	if exhausted := c.uncovered(); more || exhausted && !s.data {
		c.widen()
		c.update(true)
	} else if exhausted || c.updateHeld {
		c.update(exhausted)
	}
}

// messages returns how many messages have arrived, without the frames and credits that were none, and without
// answers that were dropped. Holder only.
func (c *Conn) messages() uint64 { return c.arrivals - c.spent }

// peerCredits returns how many messages the peer may send now. A number below 0 means that it has used credits that
// were taken for a frame, and given back because the frame was not posted (unframe): it never had them. Holder only.
func (c *Conn) peerCredits() int { return int(int32(c.ledger.granted() - uint32(c.arrivals))) }

// uncovered reports whether the peer has used all credits that it was ever granted, so that it must not send
// a message now. Holder only.
func (c *Conn) uncovered() bool { return c.peerCredits() <= 0 }

var errFirst = fmt.Errorf("%w: it has sent an unexpected First frame", ErrPeerProtocol)

var errUncovered = fmt.Errorf("%w: it has sent a message without a credit", ErrPeerProtocol)

// widen makes the window larger if the connection has a pool. The peer has used its last credit.
func (c *Conn) widen() {
	if c.pool != nil {
		c.pool.widen(c)
	}
}

// takeCreditsOf takes the credits that the frame f grants.
func (c *Conn) takeCreditsOf(f proto.Frame) error {
	// On the dialing side, c.credits is nil before ESTABLISHED. The dialing side has sent
	// nothing yet, so the peer has no credit to return.
	if f.Credits > 0 {
		if c.credits == nil || !c.credits.restore(f.Credits) {
			return errCredits(f.Credits)
		}
		c.giveUpCredits()
		if c.creditLine.Load() > 0 {
			c.serveCredits()
		}
	}
	return nil
}

// takeControl processes the frame f in s, which is not a message. The receive is submitted again before
// the peer's credits are used: the peer sends its next update only when it has got a message that uses one
// of them, which is posted after this receive.
func (c *Conn) takeControl(s *recvSlot, f proto.Frame, r *Result) {
	credited := f.Kind == proto.Return
	var bad error
	switch {
	case credited && c.uncovered():
		bad = errUncovered
	case f.Kind == proto.Recall && c.credits == nil: // only before ESTABLISHED
		bad = fmt.Errorf("%w: it recalls credits before it has granted any", ErrPeerProtocol)
	case f.Kind != proto.Fetched && r.Flags&verbs.WCWithInv != 0:
		c.invalidated(r.Imm) // the device has done it
		bad = fmt.Errorf("%w: it has invalidated a key with a control frame", ErrPeerProtocol)
	}
	if bad != nil {
		s.again()
		c.violated(bad)
		return
	}
	if f.Kind == proto.Fetched { // also while the connection is being closed
		if err := c.answered(r); err != nil {
			s.again()
			c.violated(err)
			return
		}
	}
	if s.recycle(c) != nil { // the connection is being closed
		s.buf.drop()
		return
	}
	if credited {
		c.arrivals++
		c.spent++
		c.returnCredits(1)
	} else if c.pool != nil {
		c.pool.s.q.Ready() // so that a peer that floods with updates does not take all receives
	}
	err := c.takeCreditsOf(f)
	if f.More {
		c.widen()
	}
	switch {
	case err != nil:
	case f.Kind == proto.Recall:
		err = c.recalled(f.Number)
	case f.Kind == proto.Return:
		err = c.creditsGivenUp(f.Number)
	case f.Kind == proto.First:
		err = c.heard()
	}
	if err != nil {
		c.violated(err)
		return
	}
	c.update(c.uncovered())
}

// arrivedQueue returns c.arrived, which it makes for the first message. Holder only.
func (c *Conn) arrivedQueue() *ring.IndexQueue {
	q := c.arrived.Load()
	if q == nil {
		q = ring.NewIndexQueue(c.mostCredits())
		c.arrived.Store(q)
	}
	return q
}
