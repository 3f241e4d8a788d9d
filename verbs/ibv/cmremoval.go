//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"os"
	"syscall"
)

// librdmacm opens each device that an identifier is bound to a second time, for itself, and keeps
// that context after the identifiers are gone: until the process ends, or until it meets an
// unknown device and reads the list of devices, which it does not when the list is empty
// (sync_devices_list and remove_cma_dev, librdmacm/cma.c of rdma-core 56). The kernel waits for
// that context when it removes a device whose driver cannot revoke contexts (no
// disassociate_ucontext, as rxe of 6.12): ib_uverbs_remove_one,
// drivers/infiniband/core/uverbs_main.c. So the user could close all its objects after
// DEVICE_REMOVAL, and `rdma link delete` would still wait for the process to end.
//
// That context is not in use: queue pairs here are made on the user's context ([cmID.CreateQP]),
// and librdmacm's calls to the kernel use a descriptor of their own. So on removal the two
// descriptors of the context are redirected to /dev/null. Their numbers stay reserved until
// librdmacm closes them.

// releaseRemovedContext releases librdmacm's context of a removed device. The caller has taken an event of the
// identifier and not acknowledged it yet, which keeps the library from destroying the identifier
// and closing its context.
func releaseRemovedContext(id *C.struct_vb_rdma_cm_id) {
	c := id.verbs
	if c == nil || !isDevice(int(c.cmd_fd)) {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return // without it the removal waits for the process
	}
	defer null.Close() // nothing was written
	for _, fd := range []C.int{c.cmd_fd, c.async_fd} {
		if fd >= 0 {
			// It fails for an invalid descriptor, which is released already.
			_ = syscall.Dup3(int(null.Fd()), int(fd), syscall.O_CLOEXEC)
		}
	}
}

// nullDevice is the number of /dev/null: major 1, minor 3 (Documentation/admin-guide/
// devices.txt of the kernel).
const nullDevice = 1<<8 | 3

// isDevice reports whether a descriptor is a character device other than /dev/null: each
// identifier of a context gets the removal event, and the first one redirects the descriptor.
func isDevice(fd int) bool {
	var st syscall.Stat_t
	return fd >= 0 && syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFCHR && st.Rdev != nullDevice
}
