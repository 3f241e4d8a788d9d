package reactor

import (
	"fmt"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// slot is one operation's place in its queue's table.
//
//	free → filled (submitter) → submitted (stack) → posted (holder) → free (holder)
//
// A submitter owns it from the free list to the stack, the holder of the turn
// from the stack to the free list; stack and list publish it.
type slot struct {
	seat   futures.Seat[Completion] // the future, if there is no sink
	sink   Sink
	lease  Lease
	tag    uint64
	gen    uint32 // of the wr_id; moved on by the holder when it frees the slot
	opcode uint8  // a verbs.WROpcode
	kind   Kind   // KindNone while free
	posted bool
	_      [slotPad]byte
}

// slotPad makes a slot as long as a line of the cache, on one or two of which it lies (Go
// puts a word before small tables): submitter and holder pass it to and fro.
const slotPad = 1

// table is a queue's slots and the off-heap memory that goes with them: for
// each slot a work request, its elements, a result word and its inline bytes,
// at fixed places. The slots of a queue:
//
//	0 … SendDepth-1   SendDepth   … ControlDepth more   … RecvDepth more
//	sends             the marker  control sends         receives
type table struct {
	arena   *mem.Arena
	slots   []slot
	bytes   []uint32 // that a slot's operation moves; beside it for the size of a slot
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
	maxSGE++ // the header's
	t := &table{slots: make([]slot, n), bytes: make([]uint32, n), maxSGE: maxSGE, inlineLen: inlineLen}
	for i := range t.slots {
		t.slots[i].gen = firstGen & genMask
	}
	sizes := []int{sends * verbs.SizeofSendWR, recvs * verbs.SizeofRecvWR, n * maxSGE * verbs.SizeofSGE, sends * 8, sends * inlineLen}
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
	var addrs [5]uint64
	for i, s := range sizes {
		addrs[i], _ = b.Alloc(s, cacheLine)
	}
	t.sendAddr, t.recvAddr, t.sgeAddr, t.resultAddr, t.inlineAddr = addrs[0], addrs[1], addrs[2], addrs[3], addrs[4]
	ok := make([]bool, 5)
	t.sendWR, ok[0] = mem.Array[verbs.SendWR](a, t.sendAddr, sends)
	t.recvWR, ok[1] = mem.Array[verbs.RecvWR](a, t.recvAddr, recvs)
	t.sges, ok[2] = mem.Array[verbs.SGE](a, t.sgeAddr, n*maxSGE)
	t.results, ok[3] = mem.Array[uint64](a, t.resultAddr, sends)
	t.inline, ok[4] = a.Slice(t.inlineAddr, sends*inlineLen)
	for _, o := range ok {
		if !o {
			panic("reactor: the table's arena is smaller than its parts")
		}
	}
	return t, nil
}

// cacheLine keeps the parts of an arena from sharing a line, and a work request
// on two of them.
const cacheLine = 128

func (t *table) sendWRAddr(i uint32) uint64 { return t.sendAddr + uint64(i)*verbs.SizeofSendWR }

func (t *table) recvWRAddr(i uint32) uint64 { return t.recvAddr + uint64(i)*verbs.SizeofRecvWR }

// slotSGEs is where slot i's elements stand, and their address.
func (t *table) slotSGEs(i uint32) ([]verbs.SGE, uint64) {
	at := int(i) * t.maxSGE
	return t.sges[at : at+t.maxSGE], t.sgeAddr + uint64(at)*verbs.SizeofSGE
}

func (t *table) slotInline(i uint32) ([]byte, uint64) {
	at := int(i) * t.inlineLen
	return t.inline[at : at+t.inlineLen], t.inlineAddr + uint64(at)
}

// fifo is a ring of slot indices in posting order. The holder of the turn
// owns it.
type fifo struct {
	at         []uint32
	head, tail uint32 // tail-head entries; they wrap
	mask       uint32
}

func newFIFO(n int) fifo {
	size := uint32(1)
	for int(size) < n {
		size <<= 1
	}
	return fifo{at: make([]uint32, size), mask: size - 1}
}

func (f *fifo) push(i uint32)  { f.at[f.tail&f.mask] = i; f.tail++ }
func (f *fifo) pop() uint32    { i := f.at[f.head&f.mask]; f.head++; return i }
func (f *fifo) unpush() uint32 { f.tail--; return f.at[f.tail&f.mask] }
func (f *fifo) len() int       { return int(f.tail - f.head) }

// failure is why a queue takes no requests.
//
//	shut ──open──> nil ──set──> the cause, which stays
//	  └─────────────set─────────^
type failure struct {
	// err: shut before anybody has the queue; opened by Bind, which publishes
	// the queue pair; set once by whoever fails the queue. Read by submitters.
	err atomic.Pointer[error]
}

// errShut is the cause of a queue that is shut.
var errShut = fmt.Errorf("%w: %w", ErrRequest, errUnbound)

func (f *failure) shut() { f.err.Store(&errShut) }
func (f *failure) open() { f.err.CompareAndSwap(&errShut, nil) }

// set reports whether err became the cause.
func (f *failure) set(err error) bool {
	return f.err.CompareAndSwap(nil, &err) || f.err.CompareAndSwap(&errShut, &err) || f.err.CompareAndSwap(nil, &err)
}

func (f *failure) get() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return nil
}
