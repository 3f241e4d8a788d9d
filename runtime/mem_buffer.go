package runtime

// Buffer is memory leased from the pools of a memory, registered for local use
// by the device. It is a value handle; copies share one lease. Its initial bytes are
// those that the previous owner left, or poison with [MemoryConfig.PoisonFreed].
//
// The owner returns it once with [Buffer.Release]. From then on operations refuse the
// remaining handles and slices, even when the block has a new owner, because each handle
// carries the generation it was made for. The zero Buffer behaves like a released one.
//
// Methods may be called from any goroutine and do not block, except as documented at Release.
type Buffer struct{ s Slice }

// Slice returns the whole buffer as an operand of operations.
func (b Buffer) Slice() Slice { return b.s }

// Bytes returns the buffer's memory, nil after Release; see [Slice.Bytes].
func (b Buffer) Bytes() []byte { return b.s.Bytes() }

// Len is the requested length in bytes.
func (b Buffer) Len() int { return b.s.Len() }

// Release returns the buffer to its pool. If operations are in flight on the
// buffer, its memory is allocated again only after the last of them has completed;
// the caller need not wait. A second Release, through this or any other copy,
// changes nothing and returns [ErrReleased].
//
// It does not block or allocate, except that it deregisters and unmaps
// an idle buffer larger than [MaxPooled].
func (b Buffer) Release() error {
	if !b.drop() {
		return ErrReleased
	}
	if big, ok := b.s.lease.home.(*bigBuffer); ok {
		return big.m.reap()
	}
	return nil
}

// drop is Release for the holder of a turn: it leaves the unmapping of a large
// buffer to the next reap. It reports whether this call ended the lease.
func (b Buffer) drop() bool { return b.s.lease != nil && b.s.lease.release(b.s.gen) }
