//go:build !linux || portable

package mem

// MemlockLimit returns the soft limit, in bytes, on memory that this process may lock; ^uint64(0)
// means no limit. ok is always false here: it is implemented on Linux only.
func MemlockLimit() (soft uint64, ok bool) { return 0, false }

// Pinned returns how many bytes of the process's memory devices have pinned. ok is always false here.
func Pinned() (n uint64, ok bool) { return 0, false }
