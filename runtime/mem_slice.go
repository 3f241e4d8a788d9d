package runtime

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// Slice is registered local memory that an operation can use: a range of a
// [Buffer] or a [Region]. It is a value; copies name the same memory. It owns
// nothing: once the buffer is released or the region closed, operations refuse
// the slice with [ErrReleased]. An operation that has begun keeps the memory
// until it completes, whatever its owner does.
//
// The zero Slice names no memory; it serves operations of zero bytes. Methods
// may be called from any goroutine; none blocks, and only errors allocate.
type Slice struct {
	addr   uint64 // what a work request calls the first byte
	lkey   uint32
	access verbs.AccessFlags // of the registration
	lease  *lease            // nil for the zero Slice
	gen    uint64            // the lease's generation this was made for
	b      []byte            // the memory itself
	far    int               // length of memory that this process does not see; b is nil then
}

// Len is the length in bytes. It stays what it was after the memory is gone.
func (s Slice) Len() int { return len(s.b) + s.far }

// Bytes is the memory, nil for an empty slice, for memory of another device
// ([Runtime.ImportDMABuf]) and after it was given back. The
// caller may keep the bytes only while it holds the buffer or region, and while
// an operation is in flight must not write what the operation reads, nor touch
// what it writes.
func (s Slice) Bytes() []byte {
	if s.lease == nil || !s.lease.live(s.gen) {
		return nil
	}
	return s.b
}

// Sub is the range of n bytes from off, a *[RangeError] if it is not wholly
// inside.
func (s Slice) Sub(off, n int) (Slice, error) {
	if err := checkRange("slice", off, n, s.Len()); err != nil {
		return Slice{}, err
	}
	s.addr += uint64(off)
	if s.far > 0 {
		s.far = n
		return s, nil
	}
	s.b = s.b[off : off+n : off+n]
	return s, nil
}

// SGE is the scatter-gather element that names the memory to the device. An
// element carries 32 bits of length: it panics if the slice is longer; take
// the pieces by [Slice.Sub].
//
// Implements: struct ibv_sge.
func (s Slice) SGE() verbs.SGE {
	if uint64(s.Len()) > math.MaxUint32 {
		panic(fmt.Sprintf("runtime: a slice of %d bytes does not fit one scatter-gather element", s.Len()))
	}
	return verbs.SGE{Addr: s.addr, Length: uint32(s.Len()), LKey: s.lkey}
}

// begin leases the memory to one operation: exactly one End of s.lease must
// follow, by the reactor when the operation completes, or by the caller if it
// was not submitted. It fails with [ErrReleased]. It does not block or allocate.
func (s Slice) begin() error {
	if s.lease != nil && !s.lease.begin(s.gen) {
		return ErrReleased
	}
	return nil
}

// of tells whether the memory is m's: another runtime's device does not know its
// key, or worse, knows it as something else's. The zero Slice is everybody's.
func (s Slice) of(m *memory) error {
	if s.lease != nil && s.lease.memory != m {
		return fmt.Errorf("%w: %d bytes of local memory of another runtime; copy them into memory of the connection's own", verbs.ErrInvalid, s.Len())
	}
	return nil
}

// writable tells whether the device may write here: as the target of a receive,
// a READ or an atomic. The zero Slice is: nothing is written.
func (s Slice) writable() bool {
	return s.lease == nil || s.access&verbs.AccessLocalWrite != 0
}

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

// leaseHome takes a block back. returnCredits is called by whoever ended the lease,
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
// it, and that one calls returnCredits. Handles carry the generation g they were made
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
