//go:build linux && !portable

package mem

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

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

// Pinned returns how many bytes of the process's memory devices have pinned, as the kernel charges them to the limit
// that MemlockLimit returns. ok is false where the system does not report it. It reads a file of /proc.
//
// Implements: proc_pid_status(5), VmPin.
func Pinned() (n uint64, ok bool) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, found := strings.CutPrefix(s.Text(), "VmPin:"); found {
			_, err := fmt.Sscanf(text, "%d kB", &n)
			return n << 10, err == nil
		}
	}
	return 0, false
}
