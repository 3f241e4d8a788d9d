package reactor

import (
	"fmt"
	"math"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/verbs"
)

// Payload is the data of a send request. Submit copies the slices; the caller may reuse them when
// Submit returns. The memory that the SGEs name belongs to the device until the operation
// completes. (Submit keeps pointers from a Send, so slices in a Send would escape to the heap. The
// slices in a Payload may stay on the caller's stack.)
type Payload struct {
	SGEs   []verbs.SGE
	Inline []byte // data in place of SGEs; Submit copies the bytes
	Header []byte // precedes the data; Submit copies the bytes
}

// allowedFlags are the flags that a submitter may set.
const allowedFlags = verbs.SendFence | verbs.SendSolicited | verbs.SendInline | verbs.SendSignaled

// Send is a request for a send queue. Submit copies the request, and keeps Lease and Sink until the
// operation completes.
type Send struct {
	Opcode verbs.WROpcode
	// Flags are FENCE, SOLICITED, INLINE and SIGNALED. The reactor signals some requests by itself, whose
	// completions end those before them, too. With SIGNALED the device completes this request by itself, so
	// that its result does not wait for a later one. INLINE is for a SEND or
	// WRITE of at most Queue.Inline bytes at addresses that the processor can read. With INLINE the
	// processor reads the bytes when the request is posted, so the device need not fetch them. The
	// processor does so even if the request has FENCE and the device executes the request later.
	Flags  verbs.SendFlags
	Imm    uint32 // host order
	Remote uint64
	RKey   uint32
	// Compare and Swap are the operands of a compare-and-swap, Add is the operand of a
	// fetch-and-add. For an atomic, Completion.Value is the old value of the remote word. For an
	// ATOMIC_WRITE, Swap has the 8 bytes to write, in host order. The reactor provides the
	// scatter-gather elements for the result of an atomic and for Payload.Header.
	Compare, Swap, Add uint64
	Flush              Flush  // the parameters of a FLUSH
	Invalidate         uint32 // SEND_WITH_INV, LOCAL_INV: the key
	Bind               *Bind  // the parameters of a BIND_MW; Submit does not keep the pointer
	To                 Dest   // UD queues: the destination
	RemoteSRQ          uint32 // XRC_SEND queues: the number of the shared receive queue that takes the message

	// Lease.End is called when the device no longer uses the memory. Lease may be nil.
	Lease Lease
	// Sink receives the completion, which contains Tag. If Sink is nil, a future receives the
	// completion.
	Sink Sink
	Tag  uint64
}

// Flush holds the parameters of a FLUSH of the Length bytes at Send.Remote.
type Flush struct {
	Length      uint64
	Placement   verbs.FlushPlacement
	Selectivity verbs.FlushSelectivity
}

// Bind holds the parameters of a BIND_MW; see [verbs.SendWR.SetBind].
type Bind struct {
	Window verbs.MW
	Region verbs.MR // if nil, with Length 0, the request unbinds a type 1 window
	RKey   uint32   // the new key: verbs.IncRKey of the window's key
	Addr   uint64
	Length uint64
	Access verbs.AccessFlags
}

// Dest is the destination of a datagram. AH must live until the request completes.
type Dest struct {
	AH    verbs.AH
	QPNum uint32
	QKey  uint32
}

// Recv is a request for a receive queue. PostRecv copies the request, and keeps Lease and Sink
// until the operation completes.
type Recv struct {
	Lease Lease
	Sink  Sink
	Tag   uint64
}

// Lease is an operation's hold on registered memory that the device uses. The holder of the turn
// calls End once for each operation with this lease, before it delivers the operation's result. End
// must not block. A Lease should be a pointer, because the reactor compares leases as pointers.
type Lease interface{ End() }

// SharedLease is a Lease that many operations have at the same time. One call of EndN(n) replaces n
// calls of End.
type SharedLease interface {
	Lease
	EndN(n int)
}

// Sink receives completions. The holder of the turn calls Complete, so Complete must not block.
type Sink interface {
	// Complete receives the outcome of one operation. The error is nil for a success and a
	// *verbs.WCError for a failed completion. Any other error means that the request was not posted,
	// that Queue.Release ended it, or that an atomic completed without its answer (ErrUnanswered).
	// Complete may pass t to Queue.PostFromSink, which submits requests at a lower cost than Submit. t
	// is zero if the turn is not held. t must not be used after Complete has returned.
	Complete(t SinkContext, c Completion, err error)
}

// Completion is the outcome of an operation.
type Completion struct {
	Tag   uint64
	Value uint64 // atomics: the remote word before the operation
	Bytes uint32 // the number of bytes moved
	Imm   uint32 // with verbs.WCWithImm in Flags: immediate data, host order; with WCWithInv: the invalidated key
	QPNum uint32 // receives, shared receives included: the queue pair that received the message
	SrcQP uint32 // datagrams: the sender's queue pair
	SLID  uint16 // datagrams: the sender's LID; with soft.LinkPeers its UDP port
	SL    uint8  // datagrams: the service level
	// DLIDPathBits are the low bits of the LID that a datagram was sent to; the other bits are the port's.
	DLIDPathBits uint8
	Flags        verbs.WCFlags
	Opcode       verbs.WCOpcode
	Kind         Kind
}

// Future is the future of an operation.
type Future = futures.Future[Completion]

// check() returns the length of the request in bytes, or an error if a device would refuse the
// request. So a post does not fail because of an invalid request.
func (q *Queue) check(s *Send, p *Payload) (uint32, error) {
	if extra := s.Flags &^ allowedFlags; extra != 0 {
		return 0, fmt.Errorf("%w: the caller must not set the flags %v", ErrRequest, extra)
	}
	k := kindOf(s.Opcode)
	if err := q.checkOpcode(k, s); err != nil {
		return 0, err
	}
	switch {
	case k >= KindAtomicWrite || k == KindAtomic: // requests without a payload
		if len(p.SGEs) != 0 || p.Inline != nil || p.Header != nil || s.Flags&verbs.SendInline != 0 {
			return 0, fmt.Errorf("%w: %v must have no payload and not the flag INLINE", ErrRequest, s.Opcode)
		}
		return checkNoPayload(k, s)
	case p.Inline != nil:
		if k == KindRead || len(p.SGEs) != 0 {
			return 0, fmt.Errorf("%w: %v with inline data and %d elements, want a SEND or WRITE without elements", ErrRequest, s.Opcode, len(p.SGEs))
		}
		if n := len(p.Header) + len(p.Inline); n > q.inline {
			return 0, fmt.Errorf("%w: %d bytes inline, the queue takes at most %d", ErrRequest, n, q.inline)
		}
		return uint32(len(p.Header) + len(p.Inline)), nil
	case len(p.Header) > q.cfg.Inline || k == KindRead && p.Header != nil:
		return 0, fmt.Errorf("%w: %v with a header of %d bytes; the queue takes at most %d, and a READ takes no header", ErrRequest, s.Opcode, len(p.Header), q.cfg.Inline)
	}
	if most := q.r.device.MaxSGERead; s.Opcode == verbs.WRRDMARead && most > 0 && len(p.SGEs) > most {
		return 0, fmt.Errorf("%w: a READ into %d elements, the device takes at most %d", ErrRequest, len(p.SGEs), most)
	}
	n, err := q.checkSGEs(p.SGEs, q.cfg.MaxSGE, len(p.Header), q.maxMessage())
	if err == nil && s.Flags&verbs.SendInline != 0 {
		err = q.checkInline(k, s.Opcode, n)
	}
	return n, err
}

// checkInline returns an error if a request of kind k cannot carry n bytes inline.
func (q *Queue) checkInline(k Kind, op verbs.WROpcode, n uint32) error {
	if k != KindSend && k != KindWrite || uint64(n) > uint64(q.inline) {
		return fmt.Errorf("%w: %v of %d bytes inline, want a SEND or WRITE of at most %d bytes", ErrRequest, op, n, q.inline)
	}
	return nil
}

// checkSGEs returns the length in bytes of a message, at most 2^32-1: the length of its header plus the length of its
// sges. checkSGEs returns an error if there are more elements than pieces, or if the message is longer than
// most.
func (q *Queue) checkSGEs(sges []verbs.SGE, pieces, header int, most uint64) (uint32, error) {
	if len(sges) > pieces {
		return 0, fmt.Errorf("%w: %d elements, the queue takes at most %d", ErrRequest, len(sges), pieces)
	}
	total := uint64(header)
	for i := range sges {
		total += uint64(sges[i].Length)
	}
	if total > most {
		return 0, tooLong(total, most)
	}
	return uint32(min(total, math.MaxUint32)), nil
}

func tooLong(n, most uint64) error {
	return fmt.Errorf("%w: %d bytes, the port carries at most %d in one message", ErrRequest, n, most)
}
