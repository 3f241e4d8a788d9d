package reactor

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/mem"
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

// slotChunk are slots that are made together. It has 512 bytes: Go aligns objects with pointers of up to
// this size to their size, and puts a word in front of larger ones.
type slotChunk [chunkSlots]slot

const chunkSlots = 8

// table holds a queue's slots and their off-heap memory. Each slot has a work request and
// scatter-gather elements. Each send slot also has a result word and inline bytes. All of these
// have fixed places. The slots of a queue are:
//
//	SendDepth slots   1 slot      ControlDepth slots   RecvDepth slots
//	sends             the marker  control sends        receives
//
// The slots are on the Go heap, because they have pointers. They are made when they are first used: the
// free lists give the same few again and again to a connection with few outstanding operations.
type table struct {
	arena *mem.Arena
	// slots has the chunks of slots. A chunk is stored one time, by the goroutine that has acquired the first of
	// its slots; any goroutine reads it.
	slots   []atomic.Pointer[slotChunk]
	gen     uint32   // the first generation of a slot
	bytes   []uint32 // bytes that each slot's operation moves; not a field of slot, which would then exceed a cache line
	sendWR  []verbs.SendWR
	recvWR  []verbs.RecvWR
	sges    []verbs.SGE
	results []uint64
	inline  []byte

	sgeAddr, sendAddr, recvAddr, resultAddr, inlineAddr uint64
	maxSGE, inlineLen                                   int
}

func newTable(sends, recvs, maxSGE, inlineLen, node int, firstGen uint32) (*table, error) {
	n := sends + recvs
	maxSGE++ // an additional element for Payload.Header
	t := &table{slots: newSlots(n), gen: firstGen & genMask, maxSGE: maxSGE, inlineLen: inlineLen}
	sizes := []int{sends * verbs.SizeofSendWR, recvs * verbs.SizeofRecvWR, n * maxSGE * verbs.SizeofSGE, n * 4, sends * 8, sends * inlineLen}
	total := 0
	for _, s := range sizes {
		total += s + cacheLine
	}
	a, err := mem.Map(total, mem.Options{Node: node})
	if err != nil {
		return nil, err
	}
	t.arena = a
	b := mem.NewBump(a)
	var addrs [6]uint64
	for i, s := range sizes {
		addrs[i], _ = b.Alloc(s, cacheLine)
	}
	t.sendAddr, t.recvAddr, t.sgeAddr, t.resultAddr, t.inlineAddr = addrs[0], addrs[1], addrs[2], addrs[4], addrs[5]
	ok := make([]bool, 6)
	t.sendWR, ok[0] = mem.Array[verbs.SendWR](a, t.sendAddr, sends)
	t.recvWR, ok[1] = mem.Array[verbs.RecvWR](a, t.recvAddr, recvs)
	t.sges, ok[2] = mem.Array[verbs.SGE](a, t.sgeAddr, n*maxSGE)
	t.bytes, ok[3] = mem.Array[uint32](a, addrs[3], n)
	t.results, ok[4] = mem.Array[uint64](a, t.resultAddr, sends)
	t.inline, ok[5] = a.Slice(t.inlineAddr, sends*inlineLen)
	for _, o := range ok {
		if !o {
			panic("reactor: the table's arena is smaller than its parts")
		}
	}
	return t, nil
}

// newSlots returns room for n slots.
func newSlots(n int) []atomic.Pointer[slotChunk] {
	return make([]atomic.Pointer[slotChunk], (n+chunkSlots-1)/chunkSlots)
}

// slot returns slot i, which was made.
func (t *table) slot(i uint32) *slot { return &t.slots[i/chunkSlots].Load()[i%chunkSlots] }

// make returns slot i, which the caller has acquired.
func (t *table) make(i uint32) *slot {
	at := &t.slots[i/chunkSlots]
	c := at.Load()
	if c == nil {
		c = t.makeChunk(at)
	}
	return &c[i%chunkSlots]
}

func (t *table) makeChunk(at *atomic.Pointer[slotChunk]) *slotChunk {
	c := new(slotChunk)
	for i := range c {
		c[i].gen = t.gen
	}
	if !at.CompareAndSwap(nil, c) { // a goroutine with another slot of the chunk was first
		return at.Load()
	}
	return c
}

// posted returns slot i if it was made and its request is posted, and otherwise nil.
func (t *table) posted(i uint32) *slot {
	if int(i/chunkSlots) >= len(t.slots) {
		return nil
	}
	c := t.slots[i/chunkSlots].Load()
	if c == nil || !c[i%chunkSlots].posted {
		return nil
	}
	return &c[i%chunkSlots]
}

// deviceMemory returns the part of the arena that the device accesses: results and inline bytes. The processor
// copies the rest to the device when it posts.
func (t *table) deviceMemory() (addr, n uint64) {
	return t.resultAddr, t.inlineAddr + uint64(len(t.inline)) - t.resultAddr
}

// cacheLine is the alignment of the parts of an arena, in bytes. It is a multiple of the size of a
// cache line (64 bytes, on some processors 128), so no two parts share a cache line. Each
// work request lies in one block of cacheLine bytes.
const cacheLine = 128

func (t *table) sendWRAddr(i uint32) uint64 { return t.sendAddr + uint64(i)*verbs.SizeofSendWR }

func (t *table) recvWRAddr(i uint32) uint64 { return t.recvAddr + uint64(i)*verbs.SizeofRecvWR }

// slotSGEs returns the scatter-gather elements of slot i, and the address of the first.
func (t *table) slotSGEs(i uint32) ([]verbs.SGE, uint64) {
	at := int(i) * t.maxSGE
	return t.sges[at : at+t.maxSGE], t.sgeAddr + uint64(at)*verbs.SizeofSGE
}

func (t *table) slotInline(i uint32) ([]byte, uint64) {
	at := int(i) * t.inlineLen
	return t.inline[at : at+t.inlineLen], t.inlineAddr + uint64(at)
}

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
