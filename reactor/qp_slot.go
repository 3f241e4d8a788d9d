package reactor

import (
	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/verbs"
)

// A slot holds one operation of a queue:
//
//	free → filled (submitter) → submitted (stack) → posted (holder) → free (holder)
//
// A submitter owns the slot from the moment it takes the slot off the free list until it pushes
// the slot on the submission stack. Then the holder of the turn owns the slot until it puts the
// slot back on the free list. The submission stack and the free list publish the slot to its next
// owner.
type slot struct {
	seat   futures.CellSlot[Completion] // the future, if there is no sink
	sink   Sink
	lease  Lease
	tag    uint64
	gen    uint32 // the generation in the wr_id; the holder increments it when it frees the slot
	opcode uint8  // a verbs.WROpcode
	kind   Kind   // KindNone while free
	posted bool
	_      [slotPad]byte
}

// slotPad pads a slot to 64 bytes, the size of a cache line on most processors. A slot should lie on one
// cache line, because both the submitter and the holder write it, usually on different processors.
const slotPad = 1

// The wr_id of every work request identifies its operation:
//
//	63        40 39        20 19 16 15       0
//	┌───────────┬────────────┬─────┬──────────┐
//	│generation │ queue      │kind │ slot     │
//	└───────────┴────────────┴─────┴──────────┘
//
// A completion is dropped unless all of these conditions hold:
//   - The queue in the wr_id exists.
//   - The completion has the number of the queue's queue pair. (Not checked for a SharedRecv.)
//   - The request in the slot is outstanding, and has the generation and kind in the wr_id.
//
// The slots of a new queue start with another generation than the slots of earlier queues. So a late
// completion of a released queue does not match a new queue with the same id.
const (
	slotBits  = 16
	kindBits  = 4
	queueBits = 20
	genBits   = 24

	maxQueues = 1 << queueBits
	genMask   = 1<<genBits - 1
	// genStride is the difference between the first generations of successive queues. It is 2^24
	// divided by the golden ratio, rounded. It is odd, so 2^24 successive queues have different
	// first generations.
	genStride = 0x9E3779
)

// Kind is the kind of a slot's operation. The wr_id contains the kind, because the opcode of a
// failed completion is not valid.
type Kind uint8

// The kinds.
const (
	KindNone Kind = iota
	KindSend
	KindWrite
	KindRead
	KindAtomic
	KindRecv
	KindMarker      // a zero-length WRITE whose completion retires the sends before it
	KindAtomicWrite // an 8-byte write that the peer sees whole or not at all
	KindFlush
	KindBind       // BIND_MW
	KindInvalidate // LOCAL_INV
	KindOther
)

var kindNames = [...]string{"none", "SEND", "WRITE", "READ", "ATOMIC", "RECV", "marker",
	"ATOMIC_WRITE", "FLUSH", "BIND_MW", "LOCAL_INV", "other"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind?"
}

// kinds maps opcodes to kinds. If an opcode has no entry, kindOf returns KindOther.
var kinds = [...]Kind{
	verbs.WRSend: KindSend, verbs.WRSendWithImm: KindSend, verbs.WRSendWithInv: KindSend,
	verbs.WRRDMAWrite: KindWrite, verbs.WRRDMAWriteWithImm: KindWrite, verbs.WRRDMARead: KindRead,
	verbs.WRAtomicCmpAndSwp: KindAtomic, verbs.WRAtomicFetchAndAdd: KindAtomic, verbs.WRAtomicWrite: KindAtomicWrite,
	verbs.WRFlush: KindFlush, verbs.WRBindMW: KindBind, verbs.WRLocalInv: KindInvalidate,
}

func kindOf(o verbs.WROpcode) Kind {
	if int(o) < len(kinds) && kinds[o] != KindNone {
		return kinds[o]
	}
	return KindOther
}

func packWRID(queue, slot, gen uint32, k Kind) uint64 {
	return uint64(slot) | uint64(k)<<slotBits | uint64(queue)<<(slotBits+kindBits) | uint64(gen&genMask)<<(slotBits+kindBits+queueBits)
}

func unpackWRID(id uint64) (queue, slot, gen uint32, k Kind) {
	return uint32(id>>(slotBits+kindBits)) & (maxQueues - 1),
		uint32(id) & (1<<slotBits - 1),
		uint32(id >> (slotBits + kindBits + queueBits)),
		Kind(id>>slotBits) & (1<<kindBits - 1)
}
