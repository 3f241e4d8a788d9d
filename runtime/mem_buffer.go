package runtime

// Buffer is memory that the caller leases with [Runtime.Alloc], registered for local use by the
// device. It is a small value; all copies share one lease. The initial bytes are those that the
// previous owner left, or the pattern of [MemoryConfig.PoisonFreed].
//
// The owner ends the lease with [Buffer.Release]. From then on operations refuse all copies of the
// Buffer and their slices, even when the block has a new owner: each copy carries the number of its
// lease (the generation). The zero Buffer behaves like a released one.
//
// Methods may be called from any goroutine and do not block, except as documented at Release.
type Buffer struct{ s Slice }

// Slice returns the whole buffer as a Slice, for use in operations.
func (b Buffer) Slice() Slice { return b.s }

// Bytes returns the buffer's memory, nil after Release; see [Slice.Bytes].
func (b Buffer) Bytes() []byte { return b.s.Bytes() }

// Len is the requested length in bytes.
func (b Buffer) Len() int { return b.s.Len() }

// Release ends the lease and returns the buffer to its pool. The caller need not wait for
// operations in flight on the buffer: the pool gets the memory when the last of them has completed.
// A second Release, of this or any other copy, changes nothing and returns [ErrReleased].
//
// Release does not block or allocate. A buffer larger than [MaxPooled] is an exception: if no
// operation is in flight, Release deregisters and unmaps it.
func (b Buffer) Release() error {
	if !b.drop() {
		return ErrReleased
	}
	if big, ok := b.s.lease.home.(*bigBuffer); ok {
		return big.m.reap()
	}
	return nil
}

// drop is Release without the unmapping of a large buffer, which memory.reap does later. So the
// holder of a reactor's turn may call it. It reports whether this call ended the lease.
func (b Buffer) drop() bool { return b.s.lease != nil && b.s.lease.release(b.s.gen) }
