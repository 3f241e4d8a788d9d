package runtime

// Buffer is memory leased from the pools of a memory, registered for local
// use by the device. It is a value handle; copies are the same lease. Its bytes
// are whatever the last owner left, poison with [MemoryConfig.PoisonFreed].
//
// The owner gives it back once by [Buffer.Release]. Handles and slices that
// were kept are refused from then on, even after the block went to a new owner:
// they carry the generation they were made for. The zero Buffer is as one that
// was released.
//
// Methods may be called from any goroutine and none blocks, except as Release
// says.
type Buffer struct{ s Slice }

// Slice is the whole buffer as something an operation can use.
func (b Buffer) Slice() Slice { return b.s }

// Bytes is the buffer's memory, nil after Release; see [Slice.Bytes].
func (b Buffer) Bytes() []byte { return b.s.Bytes() }

// Len is the length that was asked for, in bytes.
func (b Buffer) Len() int { return b.s.Len() }

// Release gives the buffer back. If operations are in flight on it, the memory
// stays the device's until the last of them completed, and only then can be
// allocated again; the caller need not wait. A second Release, through this or
// any other copy, changes nothing and returns [ErrReleased].
//
// It does not block or allocate, except that a buffer larger than [MaxPooled]
// that is idle is deregistered and unmapped here.
func (b Buffer) Release() error {
	if !b.drop() {
		return ErrReleased
	}
	if big, ok := b.s.lease.home.(*bigBuffer); ok {
		return big.m.reap()
	}
	return nil
}

// drop is Release for the holder of a turn: a large buffer that is idle then
// waits for the next reap. It reports whether this call gave it back.
func (b Buffer) drop() bool { return b.s.lease != nil && b.s.lease.release(b.s.gen) }
