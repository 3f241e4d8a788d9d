package reactor

import (
	"fmt"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// table holds a queue's slots and the off-heap memory of their requests. The slots of a queue are:
//
//	SendDepth slots   1 slot      ControlDepth slots   unused   RecvDepth slots
//	sends             the marker  control sends                 receives
//
// Up to chunkSlots-1 slots are unused, so that each chunk has either sends or receives.
//
// Slots are made when they are first used, a chunk of them at a time, and stay until the queue has left
// the quarantine. The free lists give the same few slots again and again to a connection with few
// outstanding operations.
type table struct {
	// chunks has the chunks of slots. A chunk is stored one time, by a goroutine that has acquired
	// one of its slots; any goroutine reads it. It publishes the chunk.
	chunks []atomic.Pointer[chunk]
	gen    uint32 // the first generation of a slot
	slab   *slab
}

// chunk is a number of slots that are made together, with a block of the slab. The block is off-heap memory, because the device
// reads it; the slots are on the Go heap, because they have pointers. The fields before slots take 56 bytes: with the word that Go puts in front of an object with
// pointers they fill a cache line, so each slot lies on a line of its own.
type chunk struct {
	requests    *[chunkSlots]verbs.SendWR
	requestAddr uint64      // the address of *requests
	sges        []verbs.SGE // slab.maxSGE for each slot
	// bytes has how many bytes each slot's operation moves. It is not in slot, which would then exceed a cache line.
	bytes *[chunkSlots]uint32
	block *block
	slots [chunkSlots]slot
}

const chunkSlots = 8

// newTable returns a table with room for n slots. It makes no slot.
func newTable(n int, s *slab, gen uint32) *table {
	return &table{chunks: make([]atomic.Pointer[chunk], (n+chunkSlots-1)/chunkSlots), gen: gen & genMask, slab: s}
}

// chunk returns the chunk of slot i, which was made.
func (t *table) chunk(i uint32) *chunk { return t.chunks[i/chunkSlots].Load() }

// make returns the chunk of slot i, which the caller has acquired. If slot i was not made, make may block and
// enter the kernel, and fails if the system or the device provides no memory.
func (t *table) make(i uint32) (*chunk, error) {
	if c := t.chunks[i/chunkSlots].Load(); c != nil {
		return c, nil
	}
	return t.makeChunk(&t.chunks[i/chunkSlots])
}

func (t *table) makeChunk(at *atomic.Pointer[chunk]) (*chunk, error) {
	b, err := t.slab.take()
	if err != nil {
		return nil, fmt.Errorf("reactor: memory for requests: %w", err)
	}
	c := &chunk{requests: b.requests, requestAddr: b.requestAddr, sges: b.sges, bytes: b.bytes, block: b}
	for i := range c.slots {
		c.slots[i].gen = t.gen
	}
	if !at.CompareAndSwap(nil, c) { // a goroutine with another slot of the chunk was first
		return at.Load(), t.slab.give(b)
	}
	return c, nil
}

// free gives the memory of the slots back. No goroutine uses the table any more, and no device its memory. After
// an error the caller may try again.
func (t *table) free() error {
	for i := range t.chunks {
		if c := t.chunks[i].Load(); c != nil {
			if err := t.slab.give(c.block); err != nil {
				return err
			}
			t.chunks[i].Store(nil)
		}
	}
	return nil
}

// slot returns slot i, which was made.
func (t *table) slot(i uint32) *slot { return &t.chunk(i).slots[i%chunkSlots] }

// posted returns slot i if it was made and its request is posted, and otherwise nil.
func (t *table) posted(i uint32) *slot {
	if int(i/chunkSlots) >= len(t.chunks) {
		return nil
	}
	c := t.chunk(i)
	if c == nil || !c.slots[i%chunkSlots].posted {
		return nil
	}
	return &c.slots[i%chunkSlots]
}

// bytes returns how many bytes the operation of slot i moves.
func (t *table) bytes(i uint32) uint32 { return t.chunk(i).bytes[i%chunkSlots] }

// send returns the work request of send slot i.
func (t *table) send(i uint32) *verbs.SendWR { return &t.chunk(i).requests[i%chunkSlots] }

// address returns the address of the work request of send slot i.
func (c *chunk) address(i uint32) uint64 {
	return c.requestAddr + uint64(i%chunkSlots)*verbs.SizeofSendWR
}

// receive returns the work request of receive slot i.
func (c *chunk) receive(i uint32) *verbs.RecvWR { return &c.block.receives[i%chunkSlots] }

// receiveAddress returns the address of the work request of receive slot i.
func (c *chunk) receiveAddress(i uint32) uint64 {
	return c.requestAddr + uint64(i%chunkSlots)*verbs.SizeofRecvWR
}

// elements returns the scatter-gather elements of slot i, and the address of the first.
func (c *chunk) elements(i uint32) ([]verbs.SGE, uint64) {
	at := c.element(i)
	return c.sges[at : at+len(c.sges)/chunkSlots], c.elementAddr(at)
}

// element returns the index in sges of the first element of slot i.
func (c *chunk) element(i uint32) int { return int(i%chunkSlots) * (len(c.sges) / chunkSlots) }

// elementAddr returns the address of sges[at]. The elements of a block end where its requests begin.
func (c *chunk) elementAddr(at int) uint64 {
	return c.requestAddr - uint64(len(c.sges)-at)*verbs.SizeofSGE
}

// inline returns the inline bytes of send slot i, and their address.
func (c *chunk) inline(i uint32) ([]byte, uint64) {
	n := len(c.block.inline) / chunkSlots
	at := int(i%chunkSlots) * n
	return c.block.inline[at : at+n], c.block.inlineAddr + uint64(at)
}

// result returns the result word of send slot i, and its address.
func (c *chunk) result(i uint32) (*uint64, uint64) {
	return &c.block.results[i%chunkSlots], c.block.resultAddr + uint64(i%chunkSlots)*wordSize
}
