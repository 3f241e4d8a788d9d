package runtime

import (
	"fmt"
	"math"

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
