package verbs

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
)

// Memory is memory that a device may be given: off-heap, so that it never moves and is
// never collected, zeroed, and of whole pages. It holds what is registered with
// [PD.RegMR], and the records that are posted and polled (see [Records]).
//
// It is its maker's until Close; the garbage collector never frees it. Its methods may
// be called from any goroutine and do not block; the bytes are guarded by nobody.
type Memory struct{ arena *mem.Arena }

var _ Object = (*Memory)(nil)

// AllocMemory makes at least size bytes of memory, rounded up to whole pages. It enters
// the kernel. Errors: [ErrInvalid] for a size that is not positive or too large; what the
// system answered.
//
// Implements: mmap(2); VirtualAlloc on Windows.
func AllocMemory(size int) (*Memory, error) {
	a, err := mem.Map(size, mem.Options{})
	switch {
	case errors.Is(err, mem.ErrSize):
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return nil, err
	}
	return &Memory{a}, nil
}

// Addr is the address of the first byte, as requests and RegMR name it.
func (m *Memory) Addr() uint64 { return m.arena.Addr() }

// Bytes is all of the memory; nil after Close. It is valid until Close: touching it
// later ends the process. A device reads and writes it while requests that name it are
// under way.
func (m *Memory) Bytes() []byte { return m.arena.Bytes() }

// String names the memory.
func (m *Memory) String() string { return fmt.Sprintf("%d bytes at 0x%x", m.arena.Len(), m.Addr()) }

// Close gives the memory back to the system; idempotent. While a region is registered
// in it the answer is [ErrBusy], and nothing changes: the device could still use it.
//
// Implements: munmap(2); VirtualFree on Windows.
func (m *Memory) Close() error {
	err := m.arena.Unmap()
	if errors.Is(err, mem.ErrPinned) {
		return fmt.Errorf("%w: regions are registered in %v: %w", ErrBusy, m, err)
	}
	return err
}

// Record is what has one layout for a program and its device. A word is for
// sync/atomic, where a peer's WRITE or atomic is waited for.
type Record interface {
	SendWR | RecvWR | SGE | WC | uint64
}

// Records is the n records of m from byte off on, as they are in memory, and the address
// of the first: what is written there is what a provider reads when at is posted. Like a
// slice expression it panics when they are not all in m; off must be a multiple of 8. They
// are valid as Bytes is. It does not allocate.
func Records[T Record](m *Memory, off, n int) (rs []T, at uint64) {
	at = m.Addr() + uint64(off)
	rs, ok := mem.Array[T](m.arena, at, n)
	if !ok || off%8 != 0 {
		panic(fmt.Sprintf("verbs: %d records from byte %d are not in %v", n, off, m))
	}
	return rs, at
}
