package verbs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sentinel"
)

// The sentinels of this room. Test with errors.Is: what is returned wraps them
// in an error that says which object and which values. [RetryOf] knows them.
var (
	ErrBusy = sentinel.Later("verbs: object in use")
	// ErrClosed is what is used after it was closed here; net.ErrClosed and os.ErrClosed,
	// too, as everything that matches it.
	ErrClosed            = sentinel.Closed
	ErrNotSupported      = sentinel.Never("verbs: not supported by this device")
	ErrInvalid           = sentinel.Never("verbs: invalid argument")
	ErrInvalidTransition = sentinel.Never("verbs: illegal queue pair transition")
	ErrDeviceRemoved     = sentinel.Never("verbs: device removed")
	ErrUnknownDevice     = sentinel.Never("verbs: unknown device")
	ErrMemlock           = sentinel.Later("verbs: locked memory limit reached")
)

// OpError is a call of the contract that failed.
type OpError struct {
	Op     string        // the C call it stands for
	Object string        // what it was called on
	Errno  syscall.Errno // 0 when no errno belongs to it
	Err    error         // the cause, when more than an errno is known
}

// Error says which call failed on what, and why.
func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Object != "" {
		b.WriteString(" on " + e.Object)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Errno != 0 {
		fmt.Fprintf(&b, ": %v (errno %d)", e.Errno, int(e.Errno))
	}
	return b.String()
}

// Unwrap gives the errno and the cause to errors.Is and errors.As.
func (e *OpError) Unwrap() []error {
	var es []error
	if e.Err != nil {
		es = append(es, e.Err)
	}
	if e.Errno != 0 {
		es = append(es, e.Errno)
	}
	return es
}

// WCError is an operation that completed without success. errors.Is matches
// another *WCError with the same Status, so that
//
//	errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr))
//
// asks for a status. Of time that ran out it matches os.ErrDeadlineExceeded, too, and
// it is a net.Error.
type WCError struct {
	Status    WCStatus
	Op        string // what was asked for, from the wr_id; "" when unknown
	QPNum     uint32
	VendorErr uint32
	WRID      uint64
	Cause     error // of a flush: the first failure of its queue, when known
}

// StatusError is a target for errors.Is; see [WCError].
func StatusError(s WCStatus) error { return &WCError{Status: s} }

// Error says what failed, where and how.
func (e *WCError) Error() string {
	op := e.Op
	if op == "" {
		op = "work request"
	}
	s := fmt.Sprintf("%s on QP 0x%06x completed with %v (vendor error 0x%x)", op, e.QPNum, e.Status, e.VendorErr)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the cause of a flush to errors.Is and errors.As.
func (e *WCError) Unwrap() error { return e.Cause }

// Is matches a *WCError with the same status, and os.ErrDeadlineExceeded when the peer
// did not answer, or was not ready, in time.
func (e *WCError) Is(target error) bool {
	if target == os.ErrDeadlineExceeded {
		return e.Status == WCRetryExcErr || e.Status == WCRNRRetryExcErr || e.Status == WCRespTimeoutErr
	}
	t, ok := target.(*WCError)
	return ok && t.Status == e.Status
}

// Timeout reports whether it, or the cause of a flush, is that time ran out.
func (e *WCError) Timeout() bool { return errors.Is(e, os.ErrDeadlineExceeded) }

// Temporary is false: the queue pair has failed. It makes this a net.Error.
func (e *WCError) Temporary() bool { return false }

// Retry is RetryNever for a request that was refused for what it asks, here or there; of a
// flush it is the cause's; otherwise RetryReconnect.
func (e *WCError) Retry() Retry {
	switch e.Status {
	case WCLocLenErr, WCLocQPOpErr, WCLocEECOpErr, WCLocProtErr, WCMWBindErr, WCLocAccessErr, WCRemInvReqErr, WCRemAccessErr,
		WCLocRDDViolErr, WCRemInvRDReqErr, WCInvEECNErr, WCInvEECStateErr:
		return RetryNever
	case WCWRFlushErr:
		if r, said := retryOf(e.Cause); said {
			return r
		}
	}
	return RetryReconnect
}

// Flushed tells whether the operation was only a consequence of an earlier
// failure of its queue pair.
func (e *WCError) Flushed() bool { return e.Status == WCWRFlushErr }

// DeviceError is a device that was not found.
type DeviceError struct {
	Name  string
	Known []string
}

// Error names the device asked for and the known ones.
func (e *DeviceError) Error() string {
	known := "none"
	if len(e.Known) > 0 {
		known = strings.Join(e.Known, ", ")
	}
	return fmt.Sprintf("unknown RDMA device %q; known: %s", e.Name, known)
}

// Is matches ErrUnknownDevice.
func (e *DeviceError) Is(target error) bool { return target == ErrUnknownDevice }
