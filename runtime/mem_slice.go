package runtime

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// Slice is registered local memory as an operand of operations: a range of a [Buffer] or a
// [Region]. It is a value; copies name the same memory. It owns nothing: once the buffer
// is released or the region closed, operations refuse the slice with [ErrReleased]. An
// operation that has begun holds the memory until it completes, even after Release.
//
// The zero Slice names no memory; it is valid for operations of zero bytes.
// Methods may be called from any goroutine and do not block; only errors allocate.
type Slice struct {
	addr      uint64 // address of the first byte in work requests
	lkey      uint32
	access    verbs.AccessFlags // of the registration
	lease     *lease            // nil for the zero Slice
	gen       uint64            // generation of the lease that this slice belongs to
	b         []byte            // the memory
	deviceLen int               // length of memory that this process cannot access; b is nil then
}

// Len is the length in bytes. It does not change when the memory is released.
func (s Slice) Len() int { return len(s.b) + s.deviceLen }

// Bytes returns the memory; nil for an empty slice, for memory of another device
// ([Runtime.ImportDMABuf]) and after release. The caller may keep the bytes only
// while it holds the buffer or region. While an operation is in flight the caller
// must not write bytes that the operation reads, nor touch bytes that it writes.
func (s Slice) Bytes() []byte {
	if s.lease == nil || !s.lease.live(s.gen) {
		return nil
	}
	return s.b
}

// Sub returns the n bytes from off, or a *[RangeError] if they are not inside the slice.
func (s Slice) Sub(off, n int) (Slice, error) {
	if err := checkRange("slice", off, n, s.Len()); err != nil {
		return Slice{}, err
	}
	s.addr += uint64(off)
	if s.deviceLen > 0 {
		s.deviceLen = n
		return s, nil
	}
	s.b = s.b[off : off+n : off+n]
	return s, nil
}

// SGE returns the scatter-gather element that names the memory to the device. The length of
// an element has 32 bits: SGE panics if the slice is longer; use [Slice.Sub] to split it.
//
// Implements: struct ibv_sge.
func (s Slice) SGE() verbs.SGE {
	if uint64(s.Len()) > math.MaxUint32 {
		panic(fmt.Sprintf("runtime: a slice of %d bytes does not fit one scatter-gather element", s.Len()))
	}
	return verbs.SGE{Addr: s.addr, Length: uint32(s.Len()), LKey: s.lkey}
}

// begin leases the memory to one operation. Exactly one End of s.lease must
// follow: by the reactor when the operation completes, or by the caller if it
// was not submitted. It fails with [ErrReleased]. It does not block or allocate.
func (s Slice) begin() error {
	if s.lease != nil && !s.lease.begin(s.gen) {
		return ErrReleased
	}
	return nil
}

// of returns an error unless the memory belongs to m: another runtime's device does not know
// the key, or knows it for other memory. The zero Slice belongs to every memory.
func (s Slice) of(m *memory) error {
	if s.lease != nil && s.lease.memory != m {
		return fmt.Errorf("%w: %d bytes of local memory of another runtime; copy them into memory of the connection's own", verbs.ErrInvalid, s.Len())
	}
	return nil
}

// writable reports whether the device may write here: as the target of a
// receive, a READ or an atomic. The zero Slice is writable.
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
// The count goes to 2^28: 4096 queues of the greatest depth, 65,536, may all use one lease. The
// generation wraps after 2^35 reuses of the same block (nine hours at one reuse per
// microsecond), which matters only to a handle kept for exactly that many reuses.
const (
	leaseCountBits = 28
	leaseCountMask = 1<<leaseCountBits - 1
	leaseDying     = 1 << leaseCountBits
	leaseGenShift  = leaseCountBits + 1
)

// leaseHome takes a block back. The goroutine that ends the lease calls
// giveBack; it may hold a turn, so giveBack must not block.
type leaseHome interface{ giveBack(index uint32) }

// lease counts the operations in flight on a buffer or a region, and
// determines which goroutine returns the memory.
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
// The state free is dying with n = 0; its word has the next generation. Exactly one goroutine makes
// the transition to free, and calls giveBack. Handles carry the generation g they were made for: they are
// refused from dying(g) on, even when the block is reused. The zero word is live(0, 0).
type lease struct {
	// word is changed atomically by begin, release, retire and End, on any
	// goroutine, and stored by open and free, on the goroutine that owns the block.
	// A goroutine that allocates a free block synchronizes by the free list of home.
	word atomic.Uint64
	// home and index are set when the memory is made and never change. A nil
	// home (regions) needs no giveBack.
	home  leaseHome
	index uint32
	// memory is the owner: memory of one device and protection domain. Immutable.
	memory *memory
}

// open makes a free block live and returns the generation of its new handles.
// Only the goroutine that took the block off the free list calls it.
func (l *lease) open() (gen uint64) {
	w := l.word.Load()
	l.word.Store(w &^ leaseDying)
	return w >> leaseGenShift
}

// inUse reports whether the block is in use: live, or with operations in
// flight. The result may be stale: it is a hint.
func (l *lease) inUse() bool { return l.word.Load()&(leaseDying|leaseCountMask) != leaseDying }

// live reports whether handles of generation gen may still use the memory.
func (l *lease) live(gen uint64) bool { return l.word.Load()>>leaseCountBits == gen<<1 }

var leaseOverflow = fmt.Sprintf("runtime: more than %d operations in flight on one piece of memory", leaseCountMask)

// begin counts one more operation in flight. It fails, changing nothing,
// if the memory was released.
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

// End ends the use of the memory by one operation, and is called once for each begin: by the
// holder of the turn before the result is delivered, or by the submitter of an operation that was
// not submitted. It does not block or allocate. On a nil lease, that of the zero [Slice], it does nothing.
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
		l.free(w >> leaseGenShift) // dying refuses begin and release: no other goroutine acts on the word
	}
}

// release ends the owner's hold: the memory returns to home now if nothing is in
// flight, else with the last End. It returns false if gen is an old generation.
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

// retire is release for memory that must be idle: if operations are in
// flight it fails and returns their number.
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

// free returns the memory. Only the goroutine that made the word dying
// with nothing in flight calls it.
func (l *lease) free(gen uint64) {
	l.word.Store((gen+1)<<leaseGenShift | leaseDying)
	if l.home != nil {
		l.home.giveBack(l.index)
	}
}
