//go:build linux && !portable

package mem

import "golang.org/x/sys/unix"

// MemlockLimit returns the soft limit, in bytes, on memory that this process may lock, which
// registration counts against; ^uint64(0) means no limit. ok is false where the system does not
// report it. It does not block.
//
// Implements: getrlimit(2), RLIMIT_MEMLOCK.
func MemlockLimit() (soft uint64, ok bool) {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) != nil {
		return 0, false
	}
	return r.Cur, true
}
