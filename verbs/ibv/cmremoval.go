//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"os"
	"syscall"
)

// librdmacm opens every device that an identifier is bound to a second time, for
// itself, and keeps that context when the identifiers are gone: until the end of
// the process, or until it meets a device that it does not know and looks through
// the list, which it does not when the list is empty (sync_devices_list and
// remove_cma_dev, librdmacm/cma.c of rdma-core 56). The kernel's removal of a device
// whose driver cannot take contexts away (no disassociate_ucontext, as rxe of 6.12)
// waits for it: ib_uverbs_remove_one, drivers/infiniband/core/uverbs_main.c. So the
// consumer, who was told DEVICE_REMOVAL, could close all that it has, and `rdma
// link delete` would still wait for the process to end.
//
// Nobody uses that context: queue pairs here are made on the consumer's
// ([cmID.CreateQP]), and what librdmacm asks the kernel goes by its own
// descriptor. So when the device goes, the two descriptors of the context come to
// stand for the null device. Their numbers stay taken until librdmacm closes them.

// letGo has librdmacm's context of a removed device let go of it. It is called with
// an event of the identifier taken and not acknowledged: as long as that is so the
// library does not end the identifier, nor close the context under it.
func letGo(id *C.struct_vb_rdma_cm_id) {
	c := id.verbs
	if c == nil || !isDevice(int(c.cmd_fd)) {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return // then it is as it was: the removal waits for the process
	}
	defer null.Close() // nothing was written
	for _, fd := range []C.int{c.cmd_fd, c.async_fd} {
		if fd >= 0 {
			// It fails for a descriptor that is none, which is let go already.
			_ = syscall.Dup3(int(null.Fd()), int(fd), syscall.O_CLOEXEC)
		}
	}
}

// nullDevice is the number of /dev/null: major 1, minor 3 (Documentation/admin-guide/
// devices.txt of the kernel).
const nullDevice = 1<<8 | 3

// isDevice tells whether a descriptor stands for a character device that is not the
// null device already: each of a context's identifiers is told of the removal.
func isDevice(fd int) bool {
	var st syscall.Stat_t
	return fd >= 0 && syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFCHR && st.Rdev != nullDevice
}
