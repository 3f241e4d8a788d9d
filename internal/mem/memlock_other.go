//go:build !linux || portable

package mem

// MemlockLimit is the soft limit, in bytes, on memory that this process may
// lock; ^uint64(0) means no limit. Here ok is always false: only Linux is asked.
func MemlockLimit() (soft uint64, ok bool) { return 0, false }
