package ring

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// FreeList is a pool of free slot indices. Any goroutine may take an index and give it back. The
// index given back last is taken first, because its slot is probably still in a cache. FreeList is
// a Treiber stack whose head carries a tag against the ABA problem: each successful change adds 1
// to the tag, so a swap fails if the head has left and come back. The tag has 48 bits: a swap
// wrongly succeeds only if a multiple of 2^48 changes happen while a goroutine is descheduled
// between its load and its swap.
type FreeList struct {
	// head is tag<<16 | index of the first free slot. The index is the constant none if no slot is
	// free. Get and Put swap head: Put publishes the link of its index and everything that its
	// caller wrote to the slot; Get acquires both.
	head atomic.Uint64
	_    pad
	// next[i] is the free index below i, or the constant none at the bottom. The goroutine that
	// puts i writes next[i] before its swap of head publishes it. A Get may read a link that is
	// being rewritten, or that is not of this list any more: the tag has then changed, and the swap of
	// Get fails.
	next Links
}

// NewFreeList returns a list on which all slots of links are free; Get gives slot 0 first.
func NewFreeList(links Links) *FreeList {
	f := new(FreeList)
	f.init(links)
	return f
}

func (f *FreeList) init(links Links) {
	checkCount("free list", len(links))
	f.next = links
	for i := range links {
		links[i].store(uint32(i + 1))
	}
	links[len(links)-1].store(none)
}

// tagOne is 1 in the tag, which is above the 16 bits of the index.
const tagOne = none + 1

// Get takes a free index; it returns false if there is none. The index belongs to the caller until
// Put. Any goroutine may call it; it does not block or allocate.
func (f *FreeList) Get() (uint32, bool) {
	for {
		model.Fresh("get")
		h := f.head.Load()
		i := uint32(h & none)
		if i == none {
			return 0, false
		}
		model.Yield("get.next")
		below := f.next[i].load()
		model.Yield("get.swap")
		if f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(below)) {
			return i, true
		}
	}
}

// GetN takes up to len(is) free indices with one change of the shared word, and returns their
// number. The indices are in the order in which calls of Get would return them. Any goroutine may
// call it; it does not block or allocate.
func (f *FreeList) GetN(is []uint32) int {
	for {
		model.Fresh("getn")
		h := f.head.Load()
		i, n := uint32(h&none), 0
		for n < len(is) && int(i) < len(f.next) {
			is[n] = i
			n++
			model.Yield("getn.next")
			// The link is arbitrary, and may be beyond the list, if the index has left the list
			// meanwhile; the tag has then changed, and the swap fails.
			i = f.next[i].load()
		}
		if n == 0 {
			return 0
		}
		model.Yield("getn.swap")
		if f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(i)) {
			return n
		}
	}
}

// Put gives back i, which must come from Get. Any goroutine may call it; it does not block or
// allocate.
func (f *FreeList) Put(i uint32) {
	for {
		model.Fresh("put")
		h := f.head.Load()
		f.next[i].store(uint32(h & none))
		model.Yield("put.swap")
		if f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(i)) {
			return
		}
	}
}

// PutN gives several indices back with one change of the shared word; the next Get returns is[0].
// Any goroutine may call it; it does not block or allocate.
func (f *FreeList) PutN(is []uint32) {
	if len(is) == 0 {
		return
	}
	for k := 1; k < len(is); k++ {
		f.next[is[k-1]].store(is[k])
	}
	last := is[len(is)-1]
	for {
		model.Fresh("putn")
		h := f.head.Load()
		f.next[last].store(uint32(h & none))
		model.Yield("putn.swap")
		if f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(is[0])) {
			return
		}
	}
}

// Cap returns the number of indices, free or not.
func (f *FreeList) Cap() int { return len(f.next) }

// Slots is a pool of free slot indices for which goroutines can wait, in order. Having a slot is
// the permission to start an operation: no further count limits the operations. Without waiters
// Slots costs one load more than a [FreeList]. A goroutine that gives a slot back hands it to a
// waiter.
type Slots struct {
	list FreeList
	line
}

// NewSlots returns a pool in which all slots of links are free; Get gives slot 0 first.
func NewSlots(links Links) *Slots {
	s := new(Slots)
	s.list.init(links)
	return s
}

// Get takes a free slot; it returns false if there is none or goroutines wait for one. The slot
// belongs to the caller until Put. Any goroutine may call it, also after Close; it does not block
// or allocate.
func (s *Slots) Get() (uint32, bool) {
	if s.waiting.Load() > 0 {
		return 0, false
	}
	return s.list.Get()
}

// GetN takes up to len(is) free slots with one change of the shared word, and returns their number.
// It returns 0 in the cases where Get returns false. Otherwise it is like Get.
func (s *Slots) GetN(is []uint32) int {
	if s.waiting.Load() > 0 {
		return 0
	}
	return s.list.GetN(is)
}

// Put gives back i, which the caller must own: Get, GetN, Wait or Collect returned it. Any
// goroutine may call Put, also after Close; it does not block or allocate. It panics if it finds
// that a slot was given back twice.
func (s *Slots) Put(i uint32) {
	s.list.Put(i)
	s.serve()
}

// PutN gives several slots back with one change of the shared word; without waiters the next Get
// returns is[0]. Otherwise it is like Put.
func (s *Slots) PutN(is []uint32) {
	s.list.PutN(is)
	s.serve()
}

// serve hands free slots to the waiters.
func (s *Slots) serve() {
	if s.waiting.Load() > 0 {
		s.handOut()
	}
}

// Collect takes a free slot even if goroutines wait, or returns false if there is none. It is for
// an owner that waits, after Close, until all slots are back.
func (s *Slots) Collect() (uint32, bool) { return s.list.Get() }
