package verbs

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
)

// Memory is memory for a device: off-heap, so that it never moves and is never collected, zeroed,
// and of whole pages. It holds regions registered with [PD.RegMR], and the records that are
// posted and polled (see [Records]).
//
// It belongs to its creator until Close; the garbage collector never frees it. Its methods may be
// called from any goroutine and do not block. Access to the bytes is not synchronized.
type Memory struct{ arena *mem.Arena }

var _ Object = (*Memory)(nil)

// AllocMemory makes at least size bytes of memory, rounded up to whole pages. It enters the
// kernel. It returns [ErrInvalid] for a size that is not positive or too large, or the system's
// error.
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

// Addr returns the address of the first byte, as used in requests and RegMR.
func (m *Memory) Addr() uint64 { return m.arena.Addr() }

// Bytes returns all of the memory; nil after Close. The slice is valid until Close: a later
// access ends the process. A device reads and writes it while requests that name it are
// outstanding.
func (m *Memory) Bytes() []byte { return m.arena.Bytes() }

// String names the memory.
func (m *Memory) String() string { return fmt.Sprintf("%d bytes at 0x%x", m.arena.Len(), m.Addr()) }

// Close returns the memory to the system; idempotent. While a region is registered in it Close
// returns [ErrBusy] and changes nothing: the device could still use the memory.
//
// Implements: munmap(2); VirtualFree on Windows.
func (m *Memory) Close() error {
	err := m.arena.Unmap()
	if errors.Is(err, mem.ErrPinned) {
		return fmt.Errorf("%w: regions are registered in %v: %w", ErrBusy, m, err)
	}
	return err
}

// Record is a type with one layout for a program and its device. A word is for sync/atomic, to
// wait for a peer's WRITE or atomic.
type Record interface {
	SendWR | RecvWR | SGE | WC | uint64
}

// Records returns the n records of m from byte off on, in place, and the address of the first: a
// provider reads them there when at is posted. Like a slice expression it panics when they are
// not all in m; off must be a multiple of 8. They are valid as long as Bytes. It does not
// allocate.
func Records[T Record](m *Memory, off, n int) (rs []T, at uint64) {
	at = m.Addr() + uint64(off)
	rs, ok := mem.Array[T](m.arena, at, n)
	if !ok || off%8 != 0 {
		panic(fmt.Sprintf("verbs: %d records from byte %d are not in %v", n, off, m))
	}
	return rs, at
}
