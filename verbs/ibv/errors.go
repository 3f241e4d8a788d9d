//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// sentinel maps an errno to the contract's sentinel; nil when it has none.
func sentinel(e syscall.Errno) error {
	switch e {
	case syscall.EINVAL:
		return verbs.ErrInvalid
	case syscall.EBUSY:
		return verbs.ErrBusy
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPROTONOSUPPORT:
		return verbs.ErrNotSupported
	}
	return nil
}

// opError is a failed call with a cause determined here.
func opError(op, object string, errno syscall.Errno, format string, a ...any) error {
	return &verbs.OpError{Op: op, Object: object, Errno: errno, Err: fmt.Errorf(format, a...)}
}

// failed is the error of a C call that returned errno; nil for 0.
func failed(op, object string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return &verbs.OpError{Op: op, Object: object, Errno: errno, Err: sentinel(errno)}
}

// noKernel is failed for the first call of a library; sign is its errno when the kernel module is
// missing (rdma-core libibverbs/init.c: no verbs class in sysfs is ENOSYS; librdmacm/cma.c: no
// device rdma_cm is ENODEV).
func noKernel(op, object string, errno, sign syscall.Errno, module string) error {
	if errno != sign {
		return failed(op, object, errno)
	}
	return opError(op, object, errno, "%w: the library is there, but not the kernel's part of it, module %s (modprobe %s; a container needs /dev/infiniband and /sys/class/infiniband_verbs too)", verbs.ErrNotSupported, module, module)
}

// foreign is the error for an object that belongs to another context.
func foreign(op, object string, given any) error {
	return opError(op, object, syscall.EINVAL, "%w: %v is not of this context", verbs.ErrInvalid, given)
}

// errnoOf returns the errno that cgo found after a call that returned NULL; EINVAL for none (see SHIM_PTR).
func errnoOf(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok && e != 0 {
		return e
	}
	return syscall.EINVAL
}
