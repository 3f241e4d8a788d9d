package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/verbs"
)

// Send is a request for a send queue. Post copies what it needs: the struct,
// SGEs and Inline are the caller's again when it returns. The memory the SGEs
// name is the device's until the operation completes.
type Send struct {
	Opcode verbs.WROpcode
	Flags  verbs.SendFlags // SIGNALED and INLINE are decided by the reactor
	SGEs   []verbs.SGE
	Inline []byte // instead of SGEs: payload copied by Post
	Header []byte // goes in front of the payload; copied by Post
	Imm    uint32 // host order
	Remote uint64
	RKey   uint32
	// Compare and Swap, or Add, of an atomic. Its local element is provided by
	// the reactor, and so is that of Header; the old value is Completion.Value.
	Compare, Swap, Add uint64

	// Lease ends when the device is done with the memory; may be nil.
	Lease Lease
	// Sink receives the completion, with Tag, instead of a future.
	Sink Sink
	Tag  uint64
}

// Recv is a request for a receive queue; ownership as in Send.
type Recv struct {
	SGEs  []verbs.SGE
	Lease Lease
	Sink  Sink
	Tag   uint64
}

// Lease is memory that the device has. End is called once, by the holder of
// the turn, before the result is delivered. It must not block.
type Lease interface{ End() }

// Sink receives completions, holding the turn. It must not block.
type Sink interface {
	// Complete gets the outcome; err is nil for a success, a *verbs.WCError
	// for a failed completion, or the reason why the request was never posted.
	Complete(c Completion, err error)
}

// Completion is the outcome of an operation.
type Completion struct {
	Tag    uint64
	Value  uint64 // atomics: what the remote word was before
	Bytes  uint32 // moved
	Imm    uint32 // host order; with verbs.WCWithImm in Flags
	Flags  verbs.WCFlags
	Opcode verbs.WCOpcode
	Kind   Kind
}

// Future is the future of an operation.
type Future = futures.Future[Completion]

func kindOf(o verbs.WROpcode) Kind {
	switch o {
	case verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv:
		return KindSend
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		return KindWrite
	case verbs.WRRDMARead:
		return KindRead
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		return KindAtomic
	}
	return KindOther
}

// check refuses what a device would refuse, so that a failed post is never the
// caller's doing; it returns the bytes to move.
func (q *Queue) check(s *Send) (uint32, error) {
	switch k := kindOf(s.Opcode); {
	case k == KindOther:
		return 0, fmt.Errorf("%w: %v is not for a reactor's queue", ErrRequest, s.Opcode)
	case k == KindAtomic:
		if len(s.SGEs) != 0 || s.Inline != nil {
			return 0, fmt.Errorf("%w: %v with buffers of its own", ErrRequest, s.Opcode)
		}
		if s.Remote%8 != 0 {
			return 0, fmt.Errorf("%w: %v at address 0x%x, want a multiple of 8", ErrRequest, s.Opcode, s.Remote)
		}
		return 8, nil
	case s.Inline != nil:
		if k == KindRead || len(s.SGEs) != 0 {
			return 0, fmt.Errorf("%w: %v with inline data and %d elements", ErrRequest, s.Opcode, len(s.SGEs))
		}
		if n := len(s.Header) + len(s.Inline); n > q.inline {
			return 0, fmt.Errorf("%w: %d bytes inline, the queue takes %d", ErrRequest, n, q.inline)
		}
		return uint32(len(s.Header) + len(s.Inline)), nil
	case len(s.Header) > q.cfg.Inline || k == KindRead && s.Header != nil:
		return 0, fmt.Errorf("%w: %v with a header of %d bytes, the queue takes %d", ErrRequest, s.Opcode, len(s.Header), q.cfg.Inline)
	}
	n, err := q.checkSGEs(s.SGEs)
	return n + uint32(len(s.Header)), err
}

func (q *Queue) checkSGEs(sges []verbs.SGE) (uint32, error) {
	if len(sges) > q.cfg.MaxSGE {
		return 0, fmt.Errorf("%w: %d elements, the queue takes %d", ErrRequest, len(sges), q.cfg.MaxSGE)
	}
	var total uint64
	for i := range sges {
		total += uint64(sges[i].Length)
	}
	if total > uint64(q.r.maxMessage) {
		return 0, fmt.Errorf("%w: %d bytes, the port carries %d in one message", ErrRequest, total, q.r.maxMessage)
	}
	return uint32(total), nil
}
