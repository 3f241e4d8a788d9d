package runtime

import (
	"fmt"
	"sync/atomic"
)

// The word of a lease:
//
//	63         29  28    27       0
//	┌────────────┬──────┬──────────┐
//	│ generation │dying │ in flight│
//	└────────────┴──────┴──────────┘
//
// The count has room for every slot of 4096 full queues on one lease; a
// generation comes back after 2^35 reuses of the same block (at one reuse per
// microsecond, nine hours of nothing else), and matters only to a handle kept
// stale for exactly that long.
const (
	leaseCountBits = 28
	leaseCountMask = 1<<leaseCountBits - 1
	leaseDying     = 1 << leaseCountBits
	leaseGenShift  = leaseCountBits + 1
)

// leaseHome takes a block back. giveBack is called by whoever ended the lease,
// possibly the holder of a turn: it must not block.
type leaseHome interface{ giveBack(index uint32) }

// lease counts the operations in flight on a buffer or a region, and decides
// who gives the memory back.
//
//	       begin / End
//	        +------+
//	        v      |
//	    live(g, n >= 0) -- release, n > 0 --> dying(g, n) --+ End, n > 1
//	     ^       |                             |  ^---------+
//	open |       | release, n = 0              | End, n = 1
//	     |       v                             |
//	    free(g), then g+1 <--------------------+
//
// free is dying with nothing in flight. Exactly one caller makes the step into
// it, and that one calls giveBack. Handles carry the generation g they were made
// for: all they ask for is refused from dying(g) on, whatever becomes of the
// block. The zero word is live(0, 0).
type lease struct {
	// word is swapped by begin, release and End, on any goroutine, and stored by
	// open and free, by the one who has the block. The step to free is published
	// by home's free list, not by the word.
	word atomic.Uint64
	// home and index are set when the memory is made and never change. A nil
	// home (regions) has nothing to give back.
	home  leaseHome
	index uint32
	// memory is whose it is: of one device and protection domain. Set when the
	// memory is made, never changed.
	memory *memory
}

// open makes a free block live, and returns what the handles made now must
// carry. The one who took the block off the free list calls it.
func (l *lease) open() (gen uint64) {
	w := l.word.Load()
	l.word.Store(w &^ leaseDying)
	return w >> leaseGenShift
}

// out tells whether the block is live or the device has it. The answer may be
// old: it is a hint.
func (l *lease) out() bool { return l.word.Load()&(leaseDying|leaseCountMask) != leaseDying }

// live tells whether handles of generation gen may still use the memory.
func (l *lease) live(gen uint64) bool { return l.word.Load()>>leaseCountBits == gen<<1 }

var leaseOverflow = fmt.Sprintf("runtime: more than %d operations in flight on one piece of memory", leaseCountMask)

// begin counts one more operation in flight. It fails, changing nothing, if the
// memory was given back.
func (l *lease) begin(gen uint64) bool {
	for {
		w := l.word.Load()
		if w>>leaseCountBits != gen<<1 {
			return false
		}
		if w&leaseCountMask == leaseCountMask {
			panic(leaseOverflow)
		}
		if l.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

// beginN is begin for n operations at once.
func (l *lease) beginN(gen uint64, n int) bool {
	for {
		w := l.word.Load()
		if w>>leaseCountBits != gen<<1 {
			return false
		}
		if w&leaseCountMask+uint64(n) > leaseCountMask {
			panic(leaseOverflow)
		}
		if l.word.CompareAndSwap(w, w+uint64(n)) {
			return true
		}
	}
}

// End says that an operation is done with the memory. The holder of the turn
// calls it, once for each begin, before the result is delivered; it does not
// block or allocate. On a nil lease, that of an empty [Slice], it does nothing.
//
// Implements: reactor.Lease.
func (l *lease) End() {
	if l != nil {
		l.EndN(1)
	}
}

// EndN is End for n operations at once.
//
// Implements: reactor.SharedLease.
func (l *lease) EndN(n int) {
	w := l.word.Add(-uint64(n))
	switch {
	case w&leaseCountMask+uint64(n) > leaseCountMask:
		panic("runtime: a lease ended more often than it began")
	case w&(leaseDying|leaseCountMask) == leaseDying:
		l.free(w >> leaseGenShift) // dying refuses begin and release: we are alone
	}
}

// release ends the owner's hold. The memory goes back now if nothing is in
// flight, or with the last End. It fails if the handle is stale.
func (l *lease) release(gen uint64) bool {
	for {
		w := l.word.Load()
		if w>>leaseCountBits != gen<<1 {
			return false
		}
		if l.word.CompareAndSwap(w, w|leaseDying) {
			if w&leaseCountMask == 0 {
				l.free(gen)
			}
			return true
		}
	}
}

// retire is release for memory that must be idle: it fails if operations are in
// flight, and says how many.
func (l *lease) retire(gen uint64) (inFlight int, ok bool) {
	for {
		w := l.word.Load()
		if w>>leaseCountBits != gen<<1 {
			return 0, false
		}
		if n := w & leaseCountMask; n != 0 {
			return int(n), false
		}
		if l.word.CompareAndSwap(w, w|leaseDying) {
			l.free(gen)
			return 0, true
		}
	}
}

// free is called by the one who found dying with nothing in flight.
func (l *lease) free(gen uint64) {
	l.word.Store((gen+1)<<leaseGenShift | leaseDying)
	if l.home != nil {
		l.home.giveBack(l.index)
	}
}
