package soft

import (
	"math/bits"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// workQueue is what send and receive queues have in common: three positions
// that only grow. Position p stands in place p & mask.
//
//	freed ─────── tail ─────────── head
//	  completed,    outstanding,     room until freed + size
//	  not polled    the engine's
//
// A place is free again when a completion of it or of a later request has been
// polled, not when the work is done: that is when hardware drivers learn of it
// (mlx5's wq->tail moves in poll_cq), and a queue that never signals runs full.
//
// A reset of the queue pair makes new queues and marks the old dead; their
// completions that nobody has polled yet are dropped (libibverbs providers
// clean the CQ when a queue pair is reset or destroyed). Those of a shared
// receive queue are delivered: its owner wants its buffers back.
type workQueue struct {
	size uint64 // requests that fit: what was granted
	mask uint64
	// head is the position of the next post. Written by the holder of the
	// reactor's turn: the store publishes the requests below. Read by the
	// engine.
	head atomic.Uint64
	_    [cacheLine]byte
	// freed is the lowest position that is not free. Written by whoever polls
	// the CQ (and by the engine when it drops completions), read by the poster.
	freed atomic.Uint64
	// dead says that completions of this queue are stale. Written by the
	// engine, read by pollers; nothing else hangs on it.
	dead atomic.Bool
	_    [cacheLine]byte
	// places are those of a shared receive queue, which are freed one by one
	// (freed and dead are not used then); nil for the others. Immutable.
	places *srqSlots
}

// cacheLine separates words of different writers: two lines, because the
// adjacent one is prefetched.
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

// room is how many requests can be posted at head.
func (w *workQueue) room(head uint64) uint64 { return w.size - (head - w.freed.Load()) }

// sendWQE is one send work request in the queue. The poster writes the upper
// part before it publishes head; the engine owns the lower part.
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
	quick  bool   // see req_quick.go

	first    uint64 // PSN of its first packet (extended, see qp_psn.go)
	npkts    uint32 // PSNs it takes
	received uint32 // READ: responses that have come, in order
	started  bool   // it has its PSNs
	finished bool   // READ, atomic: the whole answer has come
	failed   bool   // it cannot go on; see status
	status   verbs.WCStatus
	vendor   uint32
}

// reads tells whether the request waits for an answer with data.
func (w *sendWQE) reads() bool { return w.op == verbs.WRRDMARead || w.op.IsAtomic() }

// word tells whether the request is one packet, whatever its length.
func (w *sendWQE) word() bool {
	return w.op.IsAtomic() || w.op == verbs.WRFlush || w.op == verbs.WRAtomicWrite
}

// answered tells whether the request waits for an answer of its own, which an
// acknowledgement of later requests does not replace.
func (w *sendWQE) answered() bool { return w.op == verbs.WRRDMARead || w.word() }

// limited tells whether the request counts against MaxRdAtomic: all that are
// answered, but FLUSH (rxe_req.c, check_init_depth).
func (w *sendWQE) limited() bool {
	return w.op == verbs.WRRDMARead || w.op.IsAtomic() || w.op == verbs.WRAtomicWrite
}

// sendQueue is the ring of send work requests, with their elements and inline
// payload beside it.
type sendQueue struct {
	workQueue
	wqe       []sendWQE
	sge       []verbs.SGE
	inline    []byte
	maxSGE    uint32
	maxInline uint32
	sigAll    bool
}

func newSendQueue(c *verbs.QPCap, sigAll bool) *sendQueue {
	q := &sendQueue{maxSGE: c.MaxSendSGE, maxInline: c.MaxInlineData, sigAll: sigAll}
	n := q.init(c.MaxSendWR)
	q.wqe = make([]sendWQE, n)
	q.sge = make([]verbs.SGE, n*uint64(q.maxSGE))
	q.inline = make([]byte, n*uint64(q.maxInline))
	return q
}

func (q *sendQueue) at(pos uint64) *sendWQE { return &q.wqe[pos&q.mask] }

// sges are the elements of the request at pos.
func (q *sendQueue) sges(pos uint64, n uint32) []verbs.SGE {
	i := (pos & q.mask) * uint64(q.maxSGE)
	return q.sge[i : i+uint64(n)]
}

// payload is the inline payload of the request at pos.
func (q *sendQueue) payload(pos uint64, n uint32) []byte {
	i := (pos & q.mask) * uint64(q.maxInline)
	return q.inline[i : i+uint64(n) : i+uint64(n)]
}

// recvWQE is one receive work request.
type recvWQE struct {
	wrID uint64
	nsge uint32
	size uint64 // bytes its elements hold
}

// recvQueue is the ring of receive work requests of a queue pair, or of a
// shared receive queue. Where it is shared a request stands in a place of its
// own choice (see places); otherwise in that of its position.
type recvQueue struct {
	workQueue
	wqe    []recvWQE
	sge    []verbs.SGE
	maxSGE uint32
	next   uint64 // position of the next request to take; the engine's
}

func newRecvQueue(maxWR, maxSGE uint32) *recvQueue {
	q := &recvQueue{maxSGE: maxSGE}
	n := q.init(maxWR)
	q.wqe = make([]recvWQE, n)
	q.sge = make([]verbs.SGE, n*uint64(maxSGE))
	return q
}

// newSharedRing is newRecvQueue for a shared receive queue.
func newSharedRing(maxWR, maxSGE uint32) *recvQueue {
	q := newRecvQueue(maxWR, maxSGE)
	q.places = new(srqSlots)
	q.places.init(q.mask + 1)
	for place := maxWR; place > 0; place-- {
		q.places.push(&q.places.free, place-1)
	}
	return q
}

// at is the request at a place.
func (q *recvQueue) at(place uint64) *recvWQE { return &q.wqe[place&q.mask] }

func (q *recvQueue) sges(place uint64, n uint32) []verbs.SGE {
	i := (place & q.mask) * uint64(q.maxSGE)
	return q.sge[i : i+uint64(n)]
}

// posted is how many receives wait to be taken, as the engine sees it.
func (q *recvQueue) posted() uint64 { return q.head.Load() - q.next }

// front is the place of the next request to take; ok is false when none is
// posted. Engine only.
func (q *recvQueue) front() (place uint64, ok bool) {
	if q.next == q.head.Load() {
		return 0, false
	}
	if q.places != nil {
		return uint64(q.places.order[q.next&q.mask]), true
	}
	return q.next, true
}

// claim is the place for the request to be posted at pos; room tells whether
// there is one in a queue that is not shared. Poster only.
func (q *recvQueue) claim(pos uint64, room bool) (place uint64, ok bool) {
	if q.places == nil {
		return pos, room
	}
	free, ok := q.places.get()
	if ok {
		q.places.order[pos&q.mask] = free
	}
	return uint64(free), ok
}

// unclaim undoes claim.
func (q *recvQueue) unclaim(place uint64) {
	if q.places != nil {
		q.places.push(&q.places.free, uint32(place))
	}
}
