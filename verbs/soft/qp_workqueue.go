package soft

import (
	"math/bits"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// workQueue is the common part of send and receive queues: three positions that only grow.
// Position p uses slot p & mask.
//
//	freed ─────── tail ─────────── head
//	  completed,    outstanding,     room until freed + size
//	  not polled    the engine's
//
// A slot is freed when a completion of its request or of a later one has been polled, not when
// the work is done. Hardware drivers also learn of it then (mlx5's wq->tail moves in poll_cq),
// and a queue that never signals runs full.
//
// A reset of the queue pair makes new queues and marks the old ones dead. Their unpolled
// completions are dropped (libibverbs providers clean the CQ when a queue pair is reset or
// destroyed). Those of a shared receive queue are delivered: its owner needs its buffers back.
type workQueue struct {
	size uint64 // capacity in requests, as granted
	mask uint64
	// head is the position of the next post. The holder of the reactor's turn writes it: the
	// store publishes the requests below. The engine reads it.
	head atomic.Uint64
	_    [cacheLine]byte
	// freed is the lowest position that is not free. The poller of the CQ writes it (and the
	// engine when it drops completions); the poster reads it.
	freed atomic.Uint64
	// dead is set when completions of this queue are stale. The engine writes it, pollers read
	// it; it publishes nothing.
	dead atomic.Bool
	_    [cacheLine]byte
	// slots are the slots of a shared receive queue, which are freed one by one (freed and dead
	// are then unused); nil for the others. Immutable.
	slots *srqSlots
}

// cacheLine separates words of different writers. It is two lines, because the adjacent line is
// prefetched.
const cacheLine = 128

func (w *workQueue) init(size uint32) (places uint64) {
	w.size = uint64(size)
	places = 1
	if size > 1 {
		places = 1 << bits.Len64(uint64(size)-1)
	}
	w.mask = places - 1
	return places
}

// room returns the number of requests that can be posted at head.
func (w *workQueue) room(head uint64) uint64 { return w.size - (head - w.freed.Load()) }

// sendWQE is one send work request in the queue. The poster writes the upper part before it
// publishes head; the engine owns the lower part.
type sendWQE struct {
	wrID   uint64
	remote uint64
	arg1   uint64 // compare, or add
	arg2   uint64 // swap
	rkey   uint32
	imm    uint32 // host order
	length uint32 // bytes of the message
	op     verbs.WROpcode
	flags  verbs.SendFlags
	nsge   uint32
	srqn   uint32 // XRC
	fast   bool   // see req_fast.go

	first    uint64 // PSN of the first packet (extended, see qp_psn.go)
	npkts    uint32 // number of its PSNs
	received uint32 // READ: responses received, in order
	started  bool   // PSNs are assigned
	finished bool   // READ, atomic: the whole answer has arrived
	failed   bool   // it cannot proceed; see status
	status   verbs.WCStatus
	vendor   uint32
}

// reads reports whether the request waits for an answer with data.
func (w *sendWQE) reads() bool { return w.op == verbs.WRRDMARead || w.op.IsAtomic() }

// word reports whether the request is always one packet.
func (w *sendWQE) word() bool {
	return w.op.IsAtomic() || w.op == verbs.WRFlush || w.op == verbs.WRAtomicWrite
}

// answered reports whether the request waits for an answer of its own, which an acknowledgement
// of later requests does not replace.
func (w *sendWQE) answered() bool { return w.op == verbs.WRRDMARead || w.word() }

// limited reports whether the request counts against MaxRdAtomic: all answered ones except FLUSH
// (rxe_req.c, check_init_depth).
func (w *sendWQE) limited() bool {
	return w.op == verbs.WRRDMARead || w.op.IsAtomic() || w.op == verbs.WRAtomicWrite
}

// sendQueue is the ring of send work requests. Its memory grows with use: each part of it is made when
// its first slot is used first, so a queue pair that has sent little has a small ring.
type sendQueue struct {
	workQueue
	// parts hold the slots, sendPart each. The poster makes a part before it publishes, by head, a
	// request in it. The engine reads only parts with requests below head.
	parts     []*sendPart
	maxSGE    uint32
	maxInline uint32
	sigAll    bool
}

// sendPart is a part of the ring, with separate arrays for the elements and the inline payloads.
type sendPart struct {
	wqe    [partSlots]sendWQE
	sge    []verbs.SGE
	inline []byte
}

// partSlots is the number of slots of a part: enough for the few requests that set up a connection and
// keep it alive.
const (
	partBits  = 4
	partSlots = 1 << partBits
)

func newSendQueue(c *verbs.QPCap, sigAll bool) *sendQueue {
	q := &sendQueue{maxSGE: c.MaxSendSGE, maxInline: c.MaxInlineData, sigAll: sigAll}
	q.parts = make([]*sendPart, (q.init(c.MaxSendWR)+partSlots-1)>>partBits)
	return q
}

// prepare makes the part with the slot of pos, if it is not there. Poster only.
func (q *sendQueue) prepare(pos uint64) {
	if p := &q.parts[(pos&q.mask)>>partBits]; *p == nil {
		*p = &sendPart{sge: make([]verbs.SGE, partSlots*q.maxSGE), inline: make([]byte, partSlots*q.maxInline)}
	}
}

func (q *sendQueue) at(pos uint64) *sendWQE {
	pos &= q.mask
	return &q.parts[pos>>partBits].wqe[pos%partSlots]
}

// sges returns the elements of the request at pos.
func (q *sendQueue) sges(pos uint64, n uint32) []verbs.SGE {
	pos &= q.mask
	i := (pos % partSlots) * uint64(q.maxSGE)
	return q.parts[pos>>partBits].sge[i : i+uint64(n)]
}

// payload returns the inline payload of the request at pos.
func (q *sendQueue) payload(pos uint64, n uint32) []byte {
	pos &= q.mask
	i := (pos % partSlots) * uint64(q.maxInline)
	return q.parts[pos>>partBits].inline[i : i+uint64(n) : i+uint64(n)]
}

// recvWQE is one receive work request.
type recvWQE struct {
	wrID uint64
	nsge uint32
	size uint64 // total length of its elements in bytes
}

// recvQueue is the ring of receive work requests of a queue pair or of a shared receive queue. In
// a shared queue a request stands in any free slot (see places); otherwise in the slot of its
// position.
type recvQueue struct {
	workQueue
	wqe    []recvWQE
	sge    []verbs.SGE
	maxSGE uint32
	next   uint64 // position of the next request to take; engine only
}

func newRecvQueue(maxWR, maxSGE uint32) *recvQueue {
	q := &recvQueue{maxSGE: maxSGE}
	n := q.init(maxWR)
	q.wqe = make([]recvWQE, n)
	q.sge = make([]verbs.SGE, n*uint64(maxSGE))
	return q
}

// noReceives is the receive queue of all queue pairs that have none of their own. Nothing changes in it but the
// mark dead, which has no effect, because it has no completions.
var noReceives = newRecvQueue(0, 0)

// newSharedRing is newRecvQueue for a shared receive queue.
func newSharedRing(maxWR, maxSGE uint32) *recvQueue {
	q := newRecvQueue(maxWR, maxSGE)
	q.slots = new(srqSlots)
	q.slots.init(q.mask + 1)
	for place := maxWR; place > 0; place-- {
		q.slots.push(&q.slots.free, place-1)
	}
	return q
}

// at returns the request in a slot.
func (q *recvQueue) at(place uint64) *recvWQE { return &q.wqe[place&q.mask] }

func (q *recvQueue) sges(place uint64, n uint32) []verbs.SGE {
	i := (place & q.mask) * uint64(q.maxSGE)
	return q.sge[i : i+uint64(n)]
}

// posted returns the number of receives not yet taken, as the engine sees it.
func (q *recvQueue) posted() uint64 { return q.head.Load() - q.next }

// front returns the slot of the next request to take; ok is false when none is posted. Engine
// only.
func (q *recvQueue) front() (place uint64, ok bool) {
	if q.next == q.head.Load() {
		return 0, false
	}
	if q.slots != nil {
		return uint64(q.slots.order[q.next&q.mask]), true
	}
	return q.next, true
}

// claim returns the slot for the request to be posted at pos. room reports whether a queue that
// is not shared has one. Poster only.
func (q *recvQueue) claim(pos uint64, room bool) (place uint64, ok bool) {
	if q.slots == nil {
		return pos, room
	}
	free, ok := q.slots.get()
	if ok {
		q.slots.order[pos&q.mask] = free
	}
	return uint64(free), ok
}

// unclaim undoes claim.
func (q *recvQueue) unclaim(place uint64) {
	if q.slots != nil {
		q.slots.push(&q.slots.free, uint32(place))
	}
}
