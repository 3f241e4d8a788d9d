//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// limit sets the soft limit of locked memory until the test ends, for a thread of the test that has not
// CAP_IPC_LOCK.
func limit(t *testing.T, bytes uint64) {
	runtime.LockOSThread() // it ends with the test, without its capability
	version := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	must.Do(t, unix.Capget(&version, &caps[0]))
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	must.Do(t, unix.Capset(&version, &caps[0]))
	var was unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was))
	must.Do(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: min(was.Max, bytes), Max: was.Max}))
	t.Cleanup(func() { must.Do(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)) })
}

// Rule: the error of a queue that does not fit names the limit of locked memory, what was wanted, and what helps;
// EAGAIN names the cgroup.
func TestTheErrorOfAQueueNamesItsLimit(t *testing.T) {
	profiled(t, "mlx5")
	r := newRig(t, Config{})
	null := must.Get(nulldev.Open(nullPaths(t)))(t)
	defer null.Close()
	init := func() *verbs.QPInitAttr {
		return &verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}}
	}
	creations := map[string]func() error{
		"ibv_create_cq":  func() error { _, err := r.ctx.CreateCQ(8191, nil, 0, 0); return err },
		"ibv_create_qp":  func() error { _, err := r.pd.CreateQP(init()); return err },
		"ibv_create_srq": func() error { _, err := r.pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}); return err },
		"ibv_resize_cq":  func() error { return r.cq.Resize(1 << 14) },
	}
	check := func(call string, err error, e syscall.Errno, want error) {
		t.Helper()
		if !errors.Is(err, e) || !errors.Is(err, want) || !strings.Contains(err.Error(), " for ") {
			t.Errorf("%s with errno %v returned %v, want %v and what it is for", call, e, err, want)
		}
	}
	limit(t, 1<<16)
	null.SetMemlock(null.Stats().Rings)
	for call, create := range creations {
		check(call, create(), syscall.ENOMEM, verbs.ErrMemlock)
	}
	null.SetMemlock(math.MaxUint64)
	limit(t, 0)
	for call, create := range creations {
		for e, want := range map[syscall.Errno]error{syscall.EPERM: verbs.ErrMemlock, syscall.EAGAIN: verbs.ErrCgroup} {
			for _, c := range []string{call, call + "_ex"} {
				r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: c, Count: 1, Err: e})
			}
			check(call, create(), e, want)
			null.Clear()
		}
	}
}
