package soft

import (
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// opError returns the error of a failed call: the C call, the object, the errno and the cause.
func opError(op, object string, errno syscall.Errno, format string, a ...any) error {
	return &verbs.OpError{Op: op, Object: object, Errno: errno, Err: fmt.Errorf(format, a...)}
}

// notYet returns the error of a call that this device does not support.
func notYet(op, object, what string) error {
	return opError(op, object, syscall.EOPNOTSUPP, "%w: %s", verbs.ErrNotSupported, what)
}
