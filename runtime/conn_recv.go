package runtime

import (
	"errors"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// recvSlot is one receive of a managed connection, with its buffer.
//
//	free ──post──> posted ──completion──> arrived ──Recv──> held ──Release──> posted
//	                  │ flushed              │ connection gone   │ connection gone
//	                  └──────────────────────┴───────────────────┴──────────> freed
//
// The device owns the buffer in the state posted, the connection owns it in the state arrived, and
// the user owns it in the state held. The message of a discarded future goes from held back to
// arrived.
type recvSlot struct {
	c   *Conn
	i   int
	buf Buffer
	// state is odd while the slot is held, and even otherwise. Conn.handOut adds 1, and copies the
	// new state into the Message. Release and disposeMessage add 1 to this copy by a CAS, so a
	// second Release fails. When disposeMessage also frees the slot, it adds 2 more.
	state atomic.Uint64
	// The next six fields describe the arrived message. The holder writes them. Conn.arrived publishes
	// them to the goroutine that receives the message.
	nth  uint64 // the number of this message, counted from 1 in the order of arrival
	n    int    // the message's length in bytes
	imm  uint32
	with bool    // imm is valid
	data bool    // the message is a SEND, with a payload
	shut *Window // the window that the message invalidated
	sge  [1]verbs.SGE
	hook ring.Hook[recvSlot]
}

// InboxHook returns the link for Conn.backIn.
func (s *recvSlot) InboxHook() *ring.Hook[recvSlot] { return &s.hook }

func (s *recvSlot) post() error {
	return s.c.q.PostRecv(&reactor.Recv{Sink: (*connSink)(s.c), Tag: uint64(s.i)}, s.sge[:], reactor.Block)
}

// postLater submits a receive whose credit is not granted yet. The reactor posts the receive in the
// pass that posts the frame with the credit, before the frame (conn_credits.go). So all receives
// that wait for one frame share one doorbell.
func (s *recvSlot) postLater() error {
	return s.c.q.PostRecvLater(&reactor.Recv{Sink: (*connSink)(s.c), Tag: uint64(s.i)}, s.sge[:])
}

func (s *recvSlot) free() { s.buf.drop() }

// makeRecvs allocates the buffers of n receives.
func (c *Conn) makeRecvs(n int) error {
	c.recvs, c.arrived = make([]recvSlot, n), ring.NewIndexQueue(n)
	for i := range c.recvs {
		s := &c.recvs[i]
		buf, err := c.rt.mem.allocOnNode(c.sh.node, frameSize+c.opts.MessageSize)
		if err != nil {
			c.recvs = c.recvs[:i]
			return err
		}
		s.c, s.i, s.buf = c, i, buf
		s.sge[0] = buf.Slice().SGE()
	}
	return nil
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
			c.sendCreditUpdate()
		}
		c.failRefused(err)
		return
	}
	s := &c.recvs[r.Tag]
	if err != nil {
		s.free()
		c.failRefused(err)
		return
	}
	if err := c.take(s, r); err != nil {
		s.free()
		if c.state == connConnecting {
			// Fail later: this method may run in Reactor.Flush, called by Conn.setup, which still
			// uses the connection.
			c.sh.r.Defer(func() { c.fail(err) })
			return
		}
		c.fail(err)
	}
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

// take processes the receive s, which has completed with the result r. It returns an
// error if the peer has violated the protocol.
func (c *Conn) take(s *recvSlot, r Result) error {
	s.imm, s.with = r.Imm, r.Flags&verbs.WCWithImm != 0
	if s.data = r.Opcode != verbs.WCRecvRDMAWithImm; !s.data {
		s.n = int(r.Bytes)
	} else {
		f, bad := proto.ParseFrame(s.buf.Bytes(), int(r.Bytes))
		if bad != nil {
			return (*ProtocolError)(bad)
		}
		// On the dialing side, c.credits is nil before ESTABLISHED. The dialing side has sent
		// nothing yet, so the peer has no credit to return.
		if f.Credits > 0 && (c.credits == nil || !c.credits.Restore(int(f.Credits))) {
			return errCredits(f.Credits)
		}
		if f.Credits > 0 && c.creditLine.Load() > 0 {
			c.serveCredits()
		}
		if f.Kind == proto.Credit {
			if s.post() != nil { // the connection is being closed
				s.free()
			}
			return nil
		}
		s.n = int(f.Length)
	}
	if s.shut = nil; r.Flags&verbs.WCWithInv != 0 {
		s.shut = c.invalidated(r.Imm)
	}
	c.arrivals++ // a SEND or a WRITE with immediate data, which used a credit
	s.nth = c.arrivals
	c.arrived.Push(uint32(s.i))
	if len(c.recvWaiters) > 0 {
		c.match()
	}
	return nil
}
