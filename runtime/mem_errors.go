package runtime

import (
	"fmt"
	"math"

	"github.com/verbena-rdma/verbena/internal/sentinel"
	"github.com/verbena-rdma/verbena/verbs"
)

// The sentinel errors of memory. The returned errors contain details, and match these sentinels by
// errors.Is.
var (
	// ErrRange means that a range reaches outside its memory; see [RangeError].
	ErrRange = sentinel.Never("runtime: range outside its memory")
	// ErrNoMemory means that [MemoryConfig.MaxBytes] is reached; see [NoMemoryError].
	ErrNoMemory = sentinel.Later("runtime: memory limit reached")
	// ErrNoBuffer means that no buffer is free for a copy of the data of an operation that must not wait
	// ([Conn.TryStartTo]). The runtime makes one meanwhile: try again, or start the operation with a call
	// that may wait.
	ErrNoBuffer = sentinel.Later("runtime: no free buffer")
	// ErrReleased means that memory was used after its owner released it.
	ErrReleased = sentinel.Never("runtime: memory was released")
	// ErrOwnMemory means that memory that this library mapped was passed to [Runtime.Register]; see
	// [OwnMemoryError].
	ErrOwnMemory = sentinel.Never("runtime: memory belongs to the runtime")
)

// OwnMemoryError is the error of [Runtime.Register] for memory that the library mapped. This memory
// is registered already, and the library could unmap it while a registration made by Register is
// still in use. An OwnMemoryError matches [ErrOwnMemory].
type OwnMemoryError struct {
	Addr, Len uint64 // the range passed to Register
}

// Error names the range and suggests what to do instead.
func (e *OwnMemoryError) Error() string {
	return fmt.Sprintf("%v: %d bytes at 0x%x belong to a buffer or region, which is registered already: use its Slice, or make a region with the required access", ErrOwnMemory, e.Len, e.Addr)
}

// Is reports whether target is [ErrOwnMemory].
func (e *OwnMemoryError) Is(target error) bool { return target == ErrOwnMemory }

// RangeError is the error of a range that reaches outside its memory. It matches [ErrRange]. If the
// memory belongs to a peer, the error also matches [ErrRemoteRange].
type RangeError struct {
	What   string // kind of memory: "buffer", "slice", "region", "remote memory"
	Off, N uint64 // the requested range, in bytes
	Size   uint64 // size of the memory, in bytes

	signed bool // Off and N were converted from int, and stand for negative numbers if the top bit is set
}

// Error names the requested range and the memory.
func (e *RangeError) Error() string {
	if e.signed {
		return fmt.Sprintf("%v: %d bytes at offset %d of a %s of %d bytes", ErrRange, int64(e.N), int64(e.Off), e.What, e.Size)
	}
	return fmt.Sprintf("%v: %d bytes at offset %d of a %s of %d bytes", ErrRange, e.N, e.Off, e.What, e.Size)
}

// Is reports whether target is [ErrRange]. For a peer's memory, target may also be
// [ErrRemoteRange].
func (e *RangeError) Is(target error) bool {
	return target == ErrRange || target == ErrRemoteRange && e.What == whatRemote
}

// whatRemote is RangeError.What for a peer's memory.
const whatRemote = "remote memory"

// checkRange returns an error if the range [off, off+n) is not inside a memory of size bytes. It
// does not compute off+n, because the sum could overflow.
func checkRange(what string, off, n, size int) error {
	if off < 0 || n < 0 || off > size || n > size-off {
		return &RangeError{What: what, Off: uint64(off), N: uint64(n), Size: uint64(size), signed: true}
	}
	return nil
}

// NoMemoryError is the error of a request that would exceed [MemoryConfig.MaxBytes], even after
// the runtime has released all unused memory. It matches [ErrNoMemory].
type NoMemoryError struct {
	Limit  int64 // MaxBytes
	Mapped int64 // bytes already mapped
	Wanted int64 // additional bytes that the request needs
}

// Error names the limit and the request.
func (e *NoMemoryError) Error() string {
	return fmt.Sprintf("%v: MemoryConfig.MaxBytes is %d, %d bytes are mapped and %d more were needed", ErrNoMemory, e.Limit, e.Mapped, e.Wanted)
}

// Is reports whether target is [ErrNoMemory].
func (e *NoMemoryError) Is(target error) bool { return target == ErrNoMemory }

// Retry returns RetryNever if the request alone exceeds the limit, and otherwise RetryLater.
func (e *NoMemoryError) Retry() Retry { return fits(e.Wanted <= e.Limit) }

// fits(true) returns RetryLater, for a request that can fit after other memory was released.
// fits(false) returns RetryNever.
func fits(ever bool) Retry {
	if ever {
		return RetryLater
	}
	return RetryNever
}

// MemlockError is the error of a registration that exceeds the process's limit on locked memory. It
// matches [ErrMemlock]. Unwrap returns the provider's error.
type MemlockError struct {
	Limit      uint64 // soft RLIMIT_MEMLOCK in bytes; 0 if the system does not report the limit
	Wanted     uint64 // bytes of the failed registration
	Registered uint64 // bytes already registered by the runtime
	Err        error  // the provider's error
}

// Error names the limit and the registration, and suggests how to raise the limit.
func (e *MemlockError) Error() string {
	limit := fmt.Sprintf("%d bytes", e.Limit)
	if e.Limit == math.MaxUint64 {
		limit = "unlimited"
	}
	return fmt.Sprintf("%v: registering %d bytes with %d registered already, limit %s (%v); raise it with `ulimit -l unlimited`, "+
		"LimitMEMLOCK=infinity in the systemd unit, `docker run --ulimit memlock=-1`, or give the process CAP_IPC_LOCK",
		verbs.ErrMemlock, e.Wanted, e.Registered, limit, e.Err)
}

// Is reports whether target is [ErrMemlock].
func (e *MemlockError) Is(target error) bool { return target == verbs.ErrMemlock }

// Unwrap returns the provider's error.
func (e *MemlockError) Unwrap() error { return e.Err }

// Retry returns RetryNever if the limit is known and the registration alone exceeds it. Otherwise
// it returns RetryLater.
func (e *MemlockError) Retry() Retry { return fits(e.Limit == 0 || e.Wanted <= e.Limit) }
