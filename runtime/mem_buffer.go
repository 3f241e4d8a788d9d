package runtime

// Buffer is memory that the caller leases with [Runtime.Alloc]. The memory is registered for local
// use by the device. A Buffer is a small value; all copies share one lease. The initial bytes are
// zero, bytes that the previous owner left, or the pattern of [MemoryConfig.PoisonFreed].
//
// The owner ends the lease with [Buffer.Release]. After that, operations refuse all copies of the
// Buffer and their slices, even if the memory has a new owner: each copy contains the number of its
// lease (the generation). For the zero Buffer, Bytes returns nil and Release returns [ErrReleased].
//
// Methods may be called from any goroutine. They do not block.
type Buffer struct{ s Slice }

// Slice returns the whole buffer as a Slice, for use in operations.
func (b Buffer) Slice() Slice { return b.s }

// Bytes returns the buffer's memory, or nil after Release; see [Slice.Bytes].
func (b Buffer) Bytes() []byte { return b.s.Bytes() }

// Len is the requested length in bytes.
func (b Buffer) Len() int { return b.s.Len() }

// Release ends the lease. The caller need not wait for operations in flight on the buffer: the
// memory returns to its pool when the last of them has completed. A second Release of this Buffer
// or of a copy changes nothing and returns [ErrReleased].
//
// Release does not block. It allocates only for a buffer larger than [MaxPooled]: another goroutine
// deregisters and unmaps such a buffer soon after the last operation on it has completed. If the device
// or the system refuses that, Runtime.Close tries again and reports the error.
func (b Buffer) Release() error {
	if !b.drop() {
		return ErrReleased
	}
	return nil
}

// drop is Release without an error. It reports whether this call ended the lease.
func (b Buffer) drop() bool { return b.s.lease != nil && b.s.lease.release(b.s.gen) }
