package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sentinel"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// The errors of this package. A call that fails returns a *verbs.OpError, which has the name of the C
// function and the errno that it sets, and wraps one of these or an error of package verbs. So
// errors.Is(err, syscall.ENOMEM) works, too.
var (
	// ErrQueueFull (ENOMEM) means that as many requests of the queue are posted, or completed and not
	// taken from the completion queue, as the queue has room for.
	ErrQueueFull = sentinel.Later("rdmacm: queue full")
	// ErrNotConnected (EINVAL) is a send, read or write before the connection is established.
	ErrNotConnected = sentinel.Later("rdmacm: not connected")
	// ErrNoQP (EINVAL) means that the identifier has no queue pair.
	ErrNoQP = sentinel.Never("rdmacm: the identifier has no queue pair")
	// ErrRange (EINVAL) is a buffer outside the memory region that was given with it. The C functions
	// have no check but an assertion.
	ErrRange = sentinel.Never("rdmacm: buffer outside the memory region")
	// ErrShared (EINVAL) means that a completion queue is shared: then GetSendComp and GetRecvComp could
	// return completions of other identifiers. CQ.Next and CQ.Poll take them.
	ErrShared = sentinel.Never("rdmacm: the completion queue is shared")
	// ErrAsync (EINVAL) is a call for synchronous identifiers on one that reports to an event channel.
	ErrAsync = sentinel.Never("rdmacm: the identifier reports to an event channel")
	// ErrNilContext is the error of a call with a nil context.
	ErrNilContext = reactor.ErrNilContext
)

// RejectedError is the peer's refusal of a connection request.
type RejectedError struct {
	Reason      int    // as verbs.RejConsumer
	PrivateData []byte // what the peer gave to Reject, padded with zeros
}

// Error names the reason.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("rejected by the peer, reason %d", e.Reason)
}

// errNil returns the error of a call on a nil pointer.
func errNil(op string) error {
	return failure(op, nil, syscall.EINVAL, fmt.Errorf("%w: nil", verbs.ErrInvalid))
}

// failure returns the error of a call. The argument cause may be nil.
func failure(op string, on *ID, errno syscall.Errno, cause error) error {
	e := &verbs.OpError{Op: op, Errno: errno, Err: cause}
	if on != nil {
		e.Object = on.String()
	}
	return e
}

// named returns the error of a call whose part err has failed. It keeps the errno of err, if err has
// one, and otherwise chooses the one that the C function sets.
func named(op string, on *ID, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*verbs.OpError](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s of %v: %w", op, on, err) // C has no contexts, so no errno for them
	}
	return failure(op, on, errnoOf(err), err)
}

// errnoOf returns the errno that C has for err.
func errnoOf(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	for _, c := range []struct {
		is    error
		errno syscall.Errno
	}{
		{ErrQueueFull, syscall.ENOMEM}, {reactor.ErrQueueFull, syscall.ENOMEM}, {reactor.ErrRecvFull, syscall.ENOMEM}, {reactor.ErrTooMany, syscall.ENOMEM},
		{verbs.ErrDeviceRemoved, syscall.ENODEV}, {verbs.ErrUnknownDevice, syscall.ENODEV}, {verbs.ErrNotSupported, syscall.EOPNOTSUPP},
		{verbs.ErrBusy, syscall.EBUSY}, {verbs.ErrClosed, syscall.EBADF}, {verbs.ErrMemlock, syscall.ENOMEM},
	} {
		if errors.Is(err, c.is) {
			return c.errno
		}
	}
	return syscall.EINVAL
}
