package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/verbs"
)

// Payload is what a send request carries. Submit copies what it needs: all of it
// is the caller's again when Submit returns. The memory the SGEs name is the device's
// until the operation completes. (It is not part of Send because what a Send
// points to is kept: these slices may stay on the caller's stack.)
type Payload struct {
	SGEs   []verbs.SGE
	Inline []byte // instead of SGEs: bytes copied by Submit
	Header []byte // goes in front; copied by Submit
}

// Send is a request for a send queue. Submit copies it; Lease and Sink are kept
// until the operation completes.
type Send struct {
	Opcode verbs.WROpcode
	// Flags are FENCE, SOLICITED and INLINE; the others are the reactor's. INLINE is for a
	// SEND or WRITE of at most Queue.Inline bytes at addresses of the processor's, which
	// are read when it is posted, for which FENCE does not wait: the device need not fetch
	// them.
	Flags  verbs.SendFlags
	Imm    uint32 // host order
	Remote uint64
	RKey   uint32
	// Compare and Swap, or Add, of an atomic. Its local element is provided by
	// the reactor, and so is that of Header; the old value is Completion.Value.
	// Swap is also the 8 bytes of an ATOMIC_WRITE, in host order.
	Compare, Swap, Add uint64
	Flush              Flush  // FLUSH
	Invalidate         uint32 // SEND_WITH_INV, LOCAL_INV: the key
	Bind               *Bind  // BIND_MW; not kept
	To                 Dest   // a datagram queue's requests

	// Lease ends when the device is done with the memory; may be nil.
	Lease Lease
	// Sink receives the completion, with Tag, instead of a future.
	Sink Sink
	Tag  uint64
}

// Flush is what a FLUSH makes of the Length bytes at Send.Remote.
type Flush struct {
	Length      uint64
	Placement   verbs.FlushPlacement
	Selectivity verbs.FlushSelectivity
}

// Bind is what a BIND_MW makes of a memory window; see [verbs.SendWR.SetBind].
type Bind struct {
	Window verbs.MW
	Region verbs.MR // nil with Length 0 unbinds a type 1 window
	RKey   uint32   // the new key: verbs.IncRKey of the window's
	Addr   uint64
	Length uint64
	Access verbs.AccessFlags
}

// Dest is where a datagram goes. AH must live until the request completes.
type Dest struct {
	AH    verbs.AH
	QPNum uint32
	QKey  uint32
}

// Recv is a request for a receive queue; ownership as in Send.
type Recv struct {
	Lease Lease
	Sink  Sink
	Tag   uint64
}

// Lease is memory that the device has. End is called once for each operation that
// had it, by the holder of the turn, before the result is delivered. It must not
// block. Leases are compared as pointers.
type Lease interface{ End() }

// SharedLease is a Lease that many operations have at once. EndN is End for n of
// them.
type SharedLease interface {
	Lease
	EndN(n int)
}

// Sink receives completions, holding the turn. It must not block.
type Sink interface {
	// Complete gets the outcome; err is nil for a success, a *verbs.WCError
	// for a failed completion, or the reason why the request was never posted.
	// With t it may start what comes next for less than a submitter pays; t is
	// zero where no turn is held, and means nothing when Complete has returned.
	Complete(t SinkContext, c Completion, err error)
}

// Completion is the outcome of an operation.
type Completion struct {
	Tag    uint64
	Value  uint64 // atomics: what the remote word was before
	Bytes  uint32 // moved
	Imm    uint32 // host order; with verbs.WCWithImm in Flags. With verbs.WCWithInv the key that was invalidated
	QPNum  uint32 // receives: the queue pair it came by, which a shared receive does not tell
	SrcQP  uint32 // datagrams: who sent it
	Flags  verbs.WCFlags
	Opcode verbs.WCOpcode
	Kind   Kind
}

// Future is the future of an operation.
type Future = futures.Future[Completion]

// check refuses what a device would refuse, so that a failed post is never the
// caller's doing; it returns the bytes to move.
func (q *Queue) check(s *Send, p *Payload) (uint32, error) {
	if extra := s.Flags &^ (verbs.SendFence | verbs.SendSolicited | verbs.SendInline); extra != 0 {
		return 0, fmt.Errorf("%w: flags %v are not the caller's to set", ErrRequest, extra)
	}
	k := kindOf(s.Opcode)
	if err := q.checkOpcode(k, s); err != nil {
		return 0, err
	}
	switch {
	case k >= KindAtomicWrite || k == KindAtomic: // those without a payload
		if len(p.SGEs) != 0 || p.Inline != nil || p.Header != nil || s.Flags&verbs.SendInline != 0 {
			return 0, fmt.Errorf("%w: %v with buffers of its own", ErrRequest, s.Opcode)
		}
		return checkWordless(k, s)
	case p.Inline != nil:
		if k == KindRead || len(p.SGEs) != 0 {
			return 0, fmt.Errorf("%w: %v with inline data and %d elements", ErrRequest, s.Opcode, len(p.SGEs))
		}
		if n := len(p.Header) + len(p.Inline); n > q.inline {
			return 0, fmt.Errorf("%w: %d bytes inline, the queue takes %d", ErrRequest, n, q.inline)
		}
		return uint32(len(p.Header) + len(p.Inline)), nil
	case len(p.Header) > q.cfg.Inline || k == KindRead && p.Header != nil:
		return 0, fmt.Errorf("%w: %v with a header of %d bytes, the queue takes %d", ErrRequest, s.Opcode, len(p.Header), q.cfg.Inline)
	}
	if most := q.r.device.MaxSGERead; s.Opcode == verbs.WRRDMARead && most > 0 && len(p.SGEs) > most {
		return 0, fmt.Errorf("%w: a READ into %d elements, the device takes %d", ErrRequest, len(p.SGEs), most)
	}
	n, err := q.checkSGEs(p.SGEs, len(p.Header), q.maxMessage())
	if err == nil && s.Flags&verbs.SendInline != 0 {
		err = q.checkInline(k, s.Opcode, n)
	}
	return n, err
}

// checkInline refuses what a request of kind k cannot carry in itself.
func (q *Queue) checkInline(k Kind, op verbs.WROpcode, n uint32) error {
	if k != KindSend && k != KindWrite || uint64(n) > uint64(q.inline) {
		return fmt.Errorf("%w: %v of %d bytes inline, the queue takes %d of a SEND or WRITE", ErrRequest, op, n, q.inline)
	}
	return nil
}

// checkSGEs returns the bytes of a header and elements, of which a message
// carries most.
func (q *Queue) checkSGEs(sges []verbs.SGE, header int, most uint64) (uint32, error) {
	if len(sges) > q.cfg.MaxSGE {
		return 0, fmt.Errorf("%w: %d elements, the queue takes %d", ErrRequest, len(sges), q.cfg.MaxSGE)
	}
	total := uint64(header)
	for i := range sges {
		total += uint64(sges[i].Length)
	}
	if total > most {
		return 0, tooLong(total, most)
	}
	return uint32(total), nil
}

func tooLong(n, most uint64) error {
	return fmt.Errorf("%w: %d bytes, the port carries %d in one message", ErrRequest, n, most)
}
