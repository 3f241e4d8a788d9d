package runtime

import (
	"fmt"
	"math"

	"github.com/verbena-rdma/verbena/internal/sentinel"
	"github.com/verbena-rdma/verbena/verbs"
)

// The sentinels of memory. What is returned wraps them in an error that says
// the values.
var (
	// ErrRange says that a range reaches outside its memory; see [RangeError].
	ErrRange = sentinel.Never("runtime: range outside its memory")
	// ErrNoMemory says that [MemoryConfig.MaxBytes] is reached; see
	// [NoMemoryError].
	ErrNoMemory = sentinel.Later("runtime: memory limit reached")
	// ErrReleased says that memory was used after its owner gave it back.
	ErrReleased = sentinel.Never("runtime: memory was given back")
	// ErrOwnMemory says that memory of this library was given to Register; see
	// [OwnMemoryError].
	ErrOwnMemory = sentinel.Never("runtime: memory is the library's own")
)

// OwnMemoryError is memory refused by [Runtime.Register] because the library
// mapped it: it is registered already, and would be unmapped under the second
// registration. It matches [ErrOwnMemory].
type OwnMemoryError struct {
	Addr, Len uint64 // the range given
}

// Error says which range and what to use instead.
func (e *OwnMemoryError) Error() string {
	return fmt.Sprintf("%v: %d bytes at 0x%x belong to a buffer or region, which is registered as it is: use its Slice, or make a region with the access wanted", ErrOwnMemory, e.Len, e.Addr)
}

// Is matches [ErrOwnMemory].
func (e *OwnMemoryError) Is(target error) bool { return target == ErrOwnMemory }

// RangeError is a range that reaches outside its memory. It matches
// [ErrRange], and [ErrRemoteRange] if the memory is a peer's.
type RangeError struct {
	What   string // which memory: "buffer", "slice", "region", "remote memory"
	Off, N uint64 // the range asked for, in bytes
	Size   uint64 // what there is, in bytes

	signed bool // Off and N were ints, and may have been negative
}

// Error says which range of which memory was asked for.
func (e *RangeError) Error() string {
	if e.signed {
		return fmt.Sprintf("%v: %d bytes at offset %d of a %s of %d bytes", ErrRange, int64(e.N), int64(e.Off), e.What, e.Size)
	}
	return fmt.Sprintf("%v: %d bytes at offset %d of a %s of %d bytes", ErrRange, e.N, e.Off, e.What, e.Size)
}

// Is matches [ErrRange], and [ErrRemoteRange] if the memory is a peer's.
func (e *RangeError) Is(target error) bool {
	return target == ErrRange || target == ErrRemoteRange && e.What == whatRemote
}

// whatRemote is RangeError.What of a peer's memory.
const whatRemote = "remote memory"

// checkRange checks [off, off+n) against size bytes. Nothing is added, so
// nothing overflows.
func checkRange(what string, off, n, size int) error {
	if off < 0 || n < 0 || off > size || n > size-off {
		return &RangeError{What: what, Off: uint64(off), N: uint64(n), Size: uint64(size), signed: true}
	}
	return nil
}

// NoMemoryError is memory refused because [MemoryConfig.MaxBytes] would be
// passed, although everything unused was given up. It matches [ErrNoMemory].
type NoMemoryError struct {
	Limit  int64 // MaxBytes
	Mapped int64 // bytes mapped already
	Wanted int64 // bytes more that were needed
}

// Error names the limit and what was wanted.
func (e *NoMemoryError) Error() string {
	return fmt.Sprintf("%v: MemoryConfig.MaxBytes is %d, %d bytes are mapped and %d more were needed", ErrNoMemory, e.Limit, e.Mapped, e.Wanted)
}

// Is matches [ErrNoMemory].
func (e *NoMemoryError) Is(target error) bool { return target == ErrNoMemory }

// Retry is RetryLater unless it is more than the limit by itself.
func (e *NoMemoryError) Retry() Retry { return fits(e.Wanted <= e.Limit) }

// fits is RetryLater for what has room when others have given theirs back.
func fits(ever bool) Retry {
	if ever {
		return RetryLater
	}
	return RetryNever
}

// MemlockError is a registration refused because the process may not lock that
// much memory. It matches [ErrMemlock], and Unwrap gives what the
// provider answered.
type MemlockError struct {
	Limit      uint64 // soft RLIMIT_MEMLOCK in bytes; 0 also where the system does not tell
	Wanted     uint64 // bytes of this registration
	Registered uint64 // bytes that the runtime has registered already
	Err        error  // the provider's answer
}

// Error says limit, wanted and what to do about it.
func (e *MemlockError) Error() string {
	limit := fmt.Sprintf("%d bytes", e.Limit)
	if e.Limit == math.MaxUint64 {
		limit = "unlimited"
	}
	return fmt.Sprintf("%v: registering %d bytes with %d registered already, limit %s (%v); raise it with `ulimit -l unlimited`, "+
		"LimitMEMLOCK=infinity in the systemd unit, `docker run --ulimit memlock=-1`, or give the process CAP_IPC_LOCK",
		verbs.ErrMemlock, e.Wanted, e.Registered, limit, e.Err)
}

// Is matches [ErrMemlock].
func (e *MemlockError) Is(target error) bool { return target == verbs.ErrMemlock }

// Unwrap gives the provider's answer.
func (e *MemlockError) Unwrap() error { return e.Err }

// Retry is RetryLater unless it is more than the limit by itself.
func (e *MemlockError) Retry() Retry { return fits(e.Limit == 0 || e.Wanted <= e.Limit) }
