//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// raise is what helps against the limit of locked memory.
const raise = "raise it with `ulimit -l unlimited`, LimitMEMLOCK=infinity in the systemd unit, or `docker run --ulimit memlock=-1`, or give the process CAP_IPC_LOCK"

// limited adds the limit that the creation or resizing of a queue has probably met, and what was wanted. The kernel
// pins the queue's rings, and charges them to RLIMIT_MEMLOCK: ENOMEM beyond it, EPERM if it is 0 (Linux
// drivers/infiniband/core/umem.c, ib_umem_get). EAGAIN is the cgroup's limit of objects (kernel/cgroup/rdma.c,
// rdmacg_try_charge). Other errors, and ENOMEM without a limit, are left alone.
func limited(err error, format string, wanted ...any) error {
	e, ok := errors.AsType[*verbs.OpError](err)
	if !ok {
		return err
	}
	limit, known := mem.MemlockLimit()
	locks := known && (e.Errno == syscall.ENOMEM && limit != math.MaxUint64 || e.Errno == syscall.EPERM && limit == 0)
	switch what := fmt.Sprintf(format, wanted...); {
	case locks:
		e.Err = fmt.Errorf("%w: for %s; RLIMIT_MEMLOCK is %d bytes, and the process has pinned %s; %s", verbs.ErrMemlock, what, limit, pinned(), raise)
	case e.Errno == syscall.EAGAIN:
		e.Err = fmt.Errorf("%w: for %s; rdma.max in the process's cgroup has the limit, rdma.current what is used", verbs.ErrCgroup, what)
	case e.Errno == syscall.ENOMEM:
		e.Err = fmt.Errorf("out of memory for %s; no limit on locked memory applies", what)
	}
	return e
}

func pinned() string {
	if n, ok := mem.Pinned(); ok {
		return fmt.Sprintf("%d bytes", n)
	}
	return "an unknown number of bytes"
}
