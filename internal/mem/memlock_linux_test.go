//go:build linux && !portable

package mem

import (
	"math"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: RLIMIT_MEMLOCK is the limit, unless the thread has CAP_IPC_LOCK.
func TestMemlockLimitIsThatOfTheThread(t *testing.T) {
	runtime.LockOSThread() // capabilities are the thread's; it ends with the test
	version := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	must.Do(t, unix.Capget(&version, &caps[0]))
	if able := mayLock(); able {
		if limit, ok := MemlockLimit(); !ok || limit != math.MaxUint64 {
			t.Errorf("the limit with CAP_IPC_LOCK is %d, %v, want none", limit, ok)
		}
	}
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	must.Do(t, unix.Capset(&version, &caps[0]))
	var r unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r))
	if limit, ok := MemlockLimit(); !ok || limit != r.Cur {
		t.Errorf("the limit without CAP_IPC_LOCK is %d, %v, want %d", limit, ok, r.Cur)
	}
}
