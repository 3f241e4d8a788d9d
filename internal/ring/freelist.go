package ring

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// FreeList is a pool of free slot indices that any goroutine takes from and
// gives back to: last in, first out, so that warm slots are used again. It is a
// Treiber stack whose head carries a tag against ABA: each successful change
// adds 1 to it, so a swap fails if the head left and came back. The tag has 32
// bits: a goroutine would have to be descheduled between its load and its swap
// for exactly a multiple of 2^32 changes to be fooled.
type FreeList struct {
	// head is tag<<32 | index of the first free slot (none: no slot is free).
	// Swapped by Get and Put. A Put publishes the link of its index and all its
	// caller wrote to the slot; a Get acquires both.
	head atomic.Uint64
	_    pad
	// next[i] is the free index below i, none at the bottom. Written by the
	// goroutine that puts i, before the swap of head publishes it. A Get may
	// read a link that is being rewritten: its swap then fails by the tag.
	next []link
}

// NewFreeList makes a list on which 0 to n-1 are free; Get gives 0 first. It
// panics unless 0 < n < 2^32-1.
func NewFreeList(n int) *FreeList {
	f := new(FreeList)
	f.init(n)
	return f
}

func (f *FreeList) init(n int) {
	checkCount("free list", n)
	f.next = make([]link, n)
	for i := range f.next {
		f.next[i].store(uint32(i + 1))
	}
	f.next[n-1].store(none)
}

const tagOne = 1 << 32

// Get takes a free index, or reports false if there is none. The index belongs
// to the caller until Put. Any goroutine may call it; it does not block or
// allocate.
func (f *FreeList) Get() (uint32, bool) {
	for {
		model.Fresh("get")
		h := f.head.Load()
		i := uint32(h)
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

// GetN takes up to len(is) free indices with one change of the shared word, and returns
// how many; Get would have given is[0] first. Any goroutine may call it; it does not block
// or allocate.
func (f *FreeList) GetN(is []uint32) int {
	for {
		model.Fresh("getn")
		h := f.head.Load()
		i, n := uint32(h), 0
		for n < len(is) && i != none {
			is[n] = i
			n++
			model.Yield("getn.next")
			// Of an index that left the list meanwhile the link is any; then the tag
			// has moved on, and the swap fails.
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

// Put gives i back, which must come from Get. Any goroutine may call it; it does
// not block or allocate.
func (f *FreeList) Put(i uint32) {
	for {
		model.Fresh("put")
		h := f.head.Load()
		f.next[i].store(uint32(h))
		model.Yield("put.swap")
		if f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(i)) {
			return
		}
	}
}

// PutN gives several indices back with one change of the shared word; Get gives
// is[0] first. Any goroutine may call it; it does not block or allocate.
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
		f.next[last].store(uint32(h))
		model.Yield("putn.swap")
		if f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(is[0])) {
			return
		}
	}
}

// Len counts the free indices by walking the list, so it costs as much as there
// are. It is exact while nobody gets or puts, and an estimate otherwise. For
// statistics and tests.
func (f *FreeList) Len() int {
	n := 0
	for i := uint32(f.head.Load()); i != none && n < len(f.next); i = f.next[i].load() {
		n++
	}
	return n
}

// Cap is the number of indices, free or not.
func (f *FreeList) Cap() int { return len(f.next) }
