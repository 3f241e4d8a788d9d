package reactor

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// requestsOf maps each queue pair type to the opcodes that it supports (IBTA volume 1, table 42).
// Only connected types support BIND_MW and LOCAL_INV. A queue pair of type XRC_RECV has no requests, and
// so no Queue.
var requestsOf = map[verbs.QPType]verbs.OpcodeSet{
	verbs.QPTRC:      reliable,
	verbs.QPTXRCSend: reliable,
	verbs.QPTUC: verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm,
		verbs.WRBindMW, verbs.WRLocalInv),
	verbs.QPTUD: verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm),
}

var reliable = verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm,
	verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicWrite, verbs.WRFlush, verbs.WRBindMW, verbs.WRLocalInv)

// onWindows are the requests that need QueueConfig.Windows.
var onWindows = verbs.Opcodes(verbs.WRBindMW, verbs.WRLocalInv)

// requests returns the opcodes of the requests that a queue takes.
func (c *QueueConfig) requests() verbs.OpcodeSet {
	if c.Windows {
		return requestsOf[c.Type]
	}
	return requestsOf[c.Type] &^ onWindows
}

// wordSize is the length of an atomic's operand, in bytes.
const wordSize = 8

// known reports whether a Queue may have type t.
func known(t verbs.QPType) bool { return requestsOf[t] != 0 }

// checkOpcode rejects an opcode that the queue pair's type or the device does not support. It also
// rejects a datagram without a destination, and any other request with a destination.
func (q *Queue) checkOpcode(k Kind, s *Send) error {
	if !q.cfg.Windows && (k == KindBind || k == KindInvalidate) {
		return fmt.Errorf("%w: %v on a queue without QueueConfig.Windows", ErrRequest, s.Opcode)
	}
	if k == KindOther || !q.requests.Has(s.Opcode) {
		return fmt.Errorf("%w: %v is not supported on a queue of type %v", ErrRequest, s.Opcode, q.cfg.Type)
	}
	if (k >= KindAtomicWrite || s.Opcode == verbs.WRSendWithInv) && !q.r.device.Opcodes.Has(s.Opcode) {
		return fmt.Errorf("%w: %v: %w", ErrRequest, s.Opcode, verbs.ErrNotSupported)
	}
	if ud := q.cfg.Type == verbs.QPTUD; ud != (s.To.AH != nil) {
		return fmt.Errorf("%w: %v on a queue of type %v with destination %v: on a UD queue a request needs a destination, on other queues it must have none", ErrRequest, s.Opcode, q.cfg.Type, s.To.AH)
	}
	return nil
}

// checkNoPayload checks a request without a payload, and returns how many bytes the request moves.
func checkNoPayload(k Kind, s *Send) (uint32, error) {
	switch k {
	case KindAtomic, KindAtomicWrite:
		if s.Remote%wordSize != 0 {
			return 0, fmt.Errorf("%w: %v at address 0x%x, want a multiple of %d", ErrRequest, s.Opcode, s.Remote, wordSize)
		}
		return wordSize, nil
	case KindFlush:
		const placements = verbs.FlushGlobal | verbs.FlushPersistent
		if p := s.Flush.Placement; p == 0 || p&^placements != 0 || s.Flush.Selectivity > verbs.FlushMR {
			return 0, fmt.Errorf("%w: a FLUSH with placement 0x%x and selectivity %d", ErrRequest, p, s.Flush.Selectivity)
		}
		if s.Flush.Length > 1<<32-1 { // the length has 32 bits on the wire (IBTA A19)
			return 0, fmt.Errorf("%w: a FLUSH of %d bytes, want less than 2^32", ErrRequest, s.Flush.Length)
		}
	case KindBind:
		if s.Bind == nil || s.Bind.Window == nil || (s.Bind.Region == nil) != (s.Bind.Length == 0) {
			return 0, fmt.Errorf("%w: a BIND_MW needs a window, and it needs a region if and only if its Length is not 0", ErrRequest)
		}
	}
	return 0, nil
}

// maxMessage is the largest message of this queue, in bytes.
func (q *Queue) maxMessage() uint64 {
	if q.cfg.Type == verbs.QPTUD {
		return uint64(q.r.maxDatagram)
	}
	return uint64(q.r.maxMessage)
}

// fillNoPayload fills the work request of slot i for a request without a payload. It writes only
// the fields that depend on the opcode.
func fillNoPayload(i uint32, ch *chunk, k Kind, s *Send) {
	w := &ch.requests[i%chunkSlots]
	w.NumSGE = 0
	switch k {
	case KindAtomic:
		sges, _ := ch.elements(i)
		result, at := ch.result(i)
		*result = unanswered // see complete_unanswered.go
		sges[0] = verbs.SGE{Addr: at, Length: wordSize, LKey: ch.block.lkey}
		w.NumSGE = 1
		if s.Opcode == verbs.WRAtomicCmpAndSwp {
			w.SetCompareSwap(s.Remote, s.RKey, s.Compare, s.Swap)
		} else {
			w.SetFetchAdd(s.Remote, s.RKey, s.Add)
		}
	case KindAtomicWrite:
		w.SetAtomicWrite(s.Remote, s.RKey, s.Swap)
	case KindFlush:
		w.SetFlush(s.Remote, s.RKey, s.Flush.Length, s.Flush.Placement, s.Flush.Selectivity)
	case KindInvalidate:
		w.SetInvalidate(s.Invalidate)
	case KindBind:
		b := s.Bind
		var region uint64
		if b.Region != nil {
			region = b.Region.Handle()
		}
		w.SetBind(b.Window.Handle(), b.RKey, region, b.Addr, b.Length, b.Access)
	}
}

// hasType reports whether a device supports queue pairs of type t.
func hasType(d *verbs.DeviceAttr, t verbs.QPType) bool { return slices.Contains(d.QPTypes, t) }
