package runtime

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// recvSlot is one receive of managed connections, with its buffer. It belongs to one connection, or to a
// recvPool.
//
//	free ──post──> posted ──completion──> arrived ──Recv──> held ──Release──> posted
//	                  │ flushed              │ connection gone   │ connection gone
//	                  └──────────────────────┴───────────────────┴──────────> freed, or posted (pool)
//
// The device owns the buffer in the state posted, the connection owns it in the state arrived, and
// the user owns it in the state held. The message of a discarded future goes from held back to
// arrived.
type recvSlot struct {
	// c is the connection of the message. In a pool it changes with each message: the holder sets it
	// before the message is published.
	c    atomic.Pointer[Conn]
	pool *recvPool // nil if the receive belongs to one connection
	i    uint32
	buf  Buffer
	// released counts how many times a message was given back. Conn.handOut copies it into the Message.
	// Release and disposeMessage add 1 to this copy by a CAS, so a second Release fails. It publishes nothing:
	// the receive is posted, or in Conn.backIn, before another message is handed out.
	released atomic.Uint64
	// claimed is 1 more than the number of the last message that was answered, or whose answer is being sent
	// (Message.claim). A Reply that fails subtracts 1. Numbers grow, so this is never taken for the claim of a later
	// message. Any goroutine writes it. It publishes nothing.
	claimed atomic.Uint64
	// The next nine fields describe the arrived message. The holder writes them. Conn.arrived publishes
	// them to the goroutine that receives the message.
	nth  uint64 // the number of this message, counted from 1 in the order of arrival
	n    int    // the message's length in bytes
	imm  uint32
	with bool    // imm is valid
	data bool    // the message is a SEND, with a payload
	shut *Window // the window that the message invalidated
	// asked is the number of the question that the message asks, or, if answer is set, answers; 0 for neither.
	asked  uint32
	answer bool
	// large is not nil for a large message. The goroutine that frees the slot clears it.
	large *fetch
	sge   [1]verbs.SGE
	hook  ring.Hook[recvSlot]
}

// InboxHook returns the link for Conn.backIn.
func (s *recvSlot) InboxHook() *ring.Hook[recvSlot] { return &s.hook }

// recvSlots are slots by their index. They are made when they are first used, slotChunk at a time.
type recvSlots []atomic.Pointer[[slotChunk]recvSlot] // a chunk is stored one time; any goroutine reads it

// slotChunk is the number of slots that are made together. A new connection needs two.
const slotChunk = 16

func newRecvSlots(n int) recvSlots { return make(recvSlots, (n+slotChunk-1)/slotChunk) }

// at returns slot i, which was made.
func (s recvSlots) at(i uint32) *recvSlot { return &s[i/slotChunk].Load()[i%slotChunk] }

// make returns slot i.
func (s recvSlots) make(i uint32) *recvSlot {
	if at := &s[i/slotChunk]; at.Load() == nil {
		at.CompareAndSwap(nil, new([slotChunk]recvSlot))
	}
	return s.at(i)
}

// postFirst submits a receive of a connection that has no pool.
func (c *Conn) postFirst(s *recvSlot) error {
	return c.q.PostRecv(&reactor.Recv{Sink: (*connSink)(c), Tag: uint64(s.i)}, s.sge[:], reactor.Block)
}

// recycle submits the receive of a message that is not needed any more. Its credit is not granted yet: the
// reactor posts the receive in the pass that posts the frame with the credit, before the frame
// (conn_credits.go). So all receives that wait for one frame share one doorbell. If recycle fails, the
// connection, which has no pool, is ending or gone, and the caller frees the buffer.
func (s *recvSlot) recycle(c *Conn) error {
	if s.pool != nil {
		s.pool.recycle(s)
		return nil
	}
	return c.q.PostRecvLater(&reactor.Recv{Sink: (*connSink)(c), Tag: uint64(s.i)}, s.sge[:])
}

// again takes back a receive that has completed without a message. In a pool it still counts as posted.
func (s *recvSlot) again() {
	if s.pool != nil {
		s.pool.postLater(s)
	} else {
		s.buf.drop() // the connection is ending
	}
}

// giveUp ends a message that no receiver has got.
func (s *recvSlot) giveUp(c *Conn) {
	if f := s.large; f != nil {
		s.large = nil
		f.giveUp()
	}
	if s.recycle(c) != nil {
		s.buf.drop()
		return
	}
	c.returnCredits(1)
}
