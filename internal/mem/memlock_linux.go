//go:build linux && !portable

package mem

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// MemlockLimit returns the soft limit, in bytes, on memory that this process may lock, which
// registration counts against; ^uint64(0) means no limit, as for a thread with CAP_IPC_LOCK in the
// initial user namespace (Linux drivers/infiniband/core/umem.c, ib_umem_get: capable). ok is false
// where the system does not report it. It reads a file of /proc.
//
// Implements: getrlimit(2), RLIMIT_MEMLOCK.
func MemlockLimit() (soft uint64, ok bool) {
	if mayLock() {
		return math.MaxUint64, true
	}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) != nil {
		return 0, false
	}
	return r.Cur, true
}

// mayLock reports whether the calling thread has CAP_IPC_LOCK in the initial user namespace, whose
// map of users is the identity (user_namespaces(7)).
func mayLock() bool {
	var caps [2]unix.CapUserData
	if unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]) != nil || caps[0].Effective>>unix.CAP_IPC_LOCK&1 == 0 {
		return false
	}
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(users)), " ") == "0 0 4294967295"
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
