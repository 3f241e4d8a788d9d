package runtime

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// Slice is a range of a [Buffer] or a [Region], for use as local memory of operations. Copies of a
// Slice name the same memory. A Slice does not keep its memory: after the buffer is released or the
// region is closed, operations refuse the Slice with [ErrReleased]. But an operation that was
// started before the release keeps the memory until the operation completes.
//
// The zero Slice names no memory; it is valid for operations of zero bytes. Methods may be called
// from any goroutine and do not block; they allocate only errors.
type Slice struct {
	addr      uint64 // address of the first byte in work requests
	lkey      uint32
	access    verbs.AccessFlags // access flags of the registration
	lease     *lease            // nil for the zero Slice
	gen       uint64            // generation of the lease when the slice was made
	b         []byte            // the memory
	deviceLen int               // length of memory that this process cannot access (b is nil); else 0
}

// Len is the length in bytes. It does not change when the memory is released.
func (s Slice) Len() int { return len(s.b) + s.deviceLen }

// Bytes returns the memory. It returns nil for the zero Slice, for memory of another device
// ([Runtime.ImportDMABuf]), and after the buffer was released or the region closed. The caller may
// use the bytes only while it holds the buffer or region. While an operation is in flight the
// caller must not write bytes that the operation reads, and must not read or write bytes that the
// operation writes.
func (s Slice) Bytes() []byte {
	if s.lease == nil || !s.lease.live(s.gen) {
		return nil
	}
	return s.b
}

// Sub returns n bytes of s, from offset off, or a *[RangeError] if these bytes are not inside s.
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

// SGE returns the scatter-gather element that names the memory to the device. The length of an
// element has 32 bits, so SGE panics for a longer slice. Use [Slice.Sub] to split it.
//
// Implements: struct ibv_sge.
func (s Slice) SGE() verbs.SGE {
	if uint64(s.Len()) > math.MaxUint32 {
		panic(fmt.Sprintf("runtime: a slice of %d bytes does not fit one scatter-gather element", s.Len()))
	}
	return verbs.SGE{Addr: s.addr, Length: uint32(s.Len()), LKey: s.lkey}
}

// begin leases the memory to one operation. If the memory was released, begin returns
// [ErrReleased]. After each success, s.lease.End must be called exactly one time. If the operation
// was submitted, the reactor calls End when the operation completes. If it was not submitted, the
// caller of begin calls End. begin does not block or allocate.
func (s *Slice) begin() error {
	if s.lease != nil && !s.lease.begin(s.gen) {
		return ErrReleased
	}
	return nil
}

// s.of(m) returns an error if s belongs to the memory of another runtime. (The device of m may not
// know the key of a slice of another runtime, or may use the same key for other memory.) The zero
// Slice belongs to every memory.
func (s *Slice) of(m *memory) error {
	if s.lease != nil && s.lease.memory != m {
		return fmt.Errorf("%w: the %d bytes of local memory belong to another runtime; copy them into memory of the connection's runtime", verbs.ErrInvalid, s.Len())
	}
	return nil
}

// writable reports whether the device may write the memory, as a receive, a READ and an atomic
// require. The zero Slice is writable.
func (s *Slice) writable() bool {
	return s.lease == nil || s.access&verbs.AccessLocalWrite != 0
}

// The bits of lease.word:
//
//	63         29  28    27       0
//	┌────────────┬──────┬──────────┐
//	│ generation │dying │ in flight│
//	└────────────┴──────┴──────────┘
//
// The number of operations in flight is at most 2^28 - 1, which is enough for 4096 queues of the
// greatest depth, 65,534, whose operations all use one lease. The generation returns to its old
// value after 2^35 reuses of one block: nine hours at one reuse per microsecond. So an old handle
// could become valid again only after exactly 2^35 reuses.
const (
	leaseCountBits = 28
	leaseCountMask = 1<<leaseCountBits - 1
	leaseDying     = 1 << leaseCountBits
	leaseGenShift  = leaseCountBits + 1
)

// leaseHome is the slab, big buffer or region that has the memory of a lease. The goroutine that
// frees the lease calls giveBack. This goroutine may hold a reactor's turn (the right to run the
// reactor), so giveBack must not block. The method registration returns the registration of the
// memory, as long as the lease is in use.
type leaseHome interface {
	giveBack(index uint32)
	registration() verbs.MR
}

// lease counts the operations in flight on a buffer or a region, and determines which goroutine
// gives the memory back.
//
//	       begin / End
//	        +------+
//	        v      |
//	    live(g, n >= 0) -- release, n > 0 --> dying(g, n) --+ End, n > 1
//	     ^       |                             |  ^---------+
//	open |       | release, n = 0              | End, n = 1
//	     |       v                             |
//	    free = dying(g+1, 0) <-----------------+
//
// Here g is the generation and n the number of operations in flight. A free lease already has the
// next generation, and the bits of dying(g+1, 0); open makes it live(g+1, 0). Exactly one goroutine
// makes the transition to free, and this goroutine calls giveBack. A handle (a Buffer or a Slice)
// contains the generation in which it was made. The lease accepts the handle only while the lease
// is live in that generation. The zero word is live(0, 0).
type lease struct {
	// word has the bits shown above. Any goroutine may change it with lease.begin, lease.release,
	// lease.retire or lease.End, which are atomic. lease.open and lease.free store the word; only
	// the goroutine that owns the block at that time calls them. The free list of home publishes
	// the block, with its word, to the goroutine that allocates the block next.
	word atomic.Uint64
	// home gets the block back; index is the number of the block in home. Both never change.
	home  leaseHome
	index uint32
	// memory is the memory of the runtime to which the lease belongs. Immutable.
	memory *memory
}

// lease.open makes a free lease live, and returns the generation for the new handles. Only the
// goroutine that has taken the block from the free list calls open.
func (l *lease) open() (gen uint64) {
	w := l.word.Load()
	l.word.Store(w &^ leaseDying)
	return w >> leaseGenShift
}

// inUse reports whether the lease is live or has operations in flight. The result may be out of
// date when inUse returns.
func (l *lease) inUse() bool { return l.word.Load()&(leaseDying|leaseCountMask) != leaseDying }

// live reports whether handles of generation gen may still use the memory.
func (l *lease) live(gen uint64) bool { return l.word.Load()>>leaseCountBits == gen<<1 }

var leaseOverflow = fmt.Sprintf("runtime: more than %d operations in flight on one piece of memory", leaseCountMask)

// begin counts one more operation in flight and returns true. If the lease is not live in the
// generation gen, begin changes nothing and returns false.
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

// End ends the use of the memory by one operation. It is called one time for each success of begin.
// If the operation was submitted, the holder of the turn calls End, before the operation's result
// is delivered. If it was not submitted, the caller of begin calls End. End does not block or
// allocate. On a nil lease, which the zero [Slice] has, End does nothing.
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
		panic("runtime: End of a lease was called more often than begin")
	case w&(leaseDying|leaseCountMask) == leaseDying:
		l.free(w >> leaseGenShift) // a dying lease refuses begin and release, so no other goroutine changes the word
	}
}

// release ends the owner's use of the memory. If no operation is in flight, release gives the
// memory back to home. Otherwise the End of the last operation gives it back. If the generation gen
// was released before, release returns false.
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

// retire is like release if no operation is in flight. If operations are in flight, retire changes
// nothing, and returns their number and false.
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

// lease.free begins the next generation and gives the memory back to home. Only lease.release,
// lease.retire and lease.EndN call it, after they have changed the word to dying(gen, 0).
func (l *lease) free(gen uint64) {
	l.word.Store((gen+1)<<leaseGenShift | leaseDying)
	l.home.giveBack(l.index)
}
