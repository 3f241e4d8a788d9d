package verbs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sentinel"
)

// The sentinels of this package. Test with errors.Is: returned errors wrap them with the object
// and the values concerned. [RetryOf] classifies them.
var (
	ErrBusy = sentinel.Later("verbs: object in use")
	// ErrClosed is the use of an object after the program closed it. net.ErrClosed and
	// os.ErrClosed match it too.
	ErrClosed            = sentinel.Closed
	ErrNotSupported      = sentinel.Never("verbs: not supported by this device")
	ErrInvalid           = sentinel.Never("verbs: invalid argument")
	ErrInvalidTransition = sentinel.Never("verbs: illegal queue pair transition")
	ErrDeviceRemoved     = sentinel.Never("verbs: device removed")
	ErrUnknownDevice     = sentinel.Never("verbs: unknown device")
	ErrMemlock           = sentinel.Later("verbs: locked memory limit reached")
	ErrCgroup            = sentinel.Later("verbs: limit of the rdma cgroup reached")
)

// OpError is a call of the contract that failed.
type OpError struct {
	Op     string        // the C call it corresponds to
	Object string        // the object it was called on
	Errno  syscall.Errno // 0 when there is none
	Err    error         // the cause, when more than an errno is known
}

// Error names the call, the object and the reason.
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

// Unwrap returns the errno and the cause for errors.Is and errors.As.
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

// WCError is an operation that completed without success. errors.Is matches another *WCError with
// the same Status, so that
//
//	errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr))
//
// tests for a status. A WCError is a net.Error, and one whose status is a timeout also matches
// os.ErrDeadlineExceeded.
type WCError struct {
	Status    WCStatus
	Op        string // the operation, from the wr_id; "" when unknown
	QPNum     uint32
	VendorErr uint32
	WRID      uint64
	Cause     error // of a flush: the first failure of its queue, when known
}

// StatusError is a target for errors.Is; see [WCError].
func StatusError(s WCStatus) error { return &WCError{Status: s} }

// Error names the operation, the place and the status.
func (e *WCError) Error() string {
	op := e.Op
	if op == "" {
		op = "work request"
	}
	s := fmt.Sprintf("%s on QP 0x%06x completed with %v (vendor error 0x%x)", op, e.QPNum, e.Status, e.VendorErr)
	if e.Status == WCRetryExcErr && e.Op == WRFlush.String() {
		s += ": a peer does not answer while it writes to its disk; more or longer retries wait for it"
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause of a flush for errors.Is and errors.As.
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

// Timeout reports whether the error, or the cause of a flush, is a timeout.
func (e *WCError) Timeout() bool { return errors.Is(e, os.ErrDeadlineExceeded) }

// Temporary returns false: the queue pair has failed. It makes WCError a net.Error.
func (e *WCError) Temporary() bool { return false }

// Retry returns RetryNever for a request that either end refused as invalid, the cause's Retry
// for a flush, and RetryReconnect otherwise.
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

// Flushed reports whether the operation ended only because its queue pair had failed earlier.
func (e *WCError) Flushed() bool { return e.Status == WCWRFlushErr }

// DeviceError is a device that was not found.
type DeviceError struct {
	Name  string
	Known []string
}

// Error names the requested device and the known ones.
func (e *DeviceError) Error() string {
	known := "none"
	if len(e.Known) > 0 {
		known = strings.Join(e.Known, ", ")
	}
	return fmt.Sprintf("unknown RDMA device %q; known: %s", e.Name, known)
}

// Is reports whether target is ErrUnknownDevice.
func (e *DeviceError) Is(target error) bool { return target == ErrUnknownDevice }
