package verbs

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sentinel"
)

// Retry is what trying again takes.
type Retry uint8

// What trying again takes, the worst first.
const (
	// RetryNever is an error that comes again: a mistake in the call, what the device
	// cannot do, what is closed here, a context that has ended. So is every error that
	// nothing here knows, and one that leaves open whether the call was carried out once.
	RetryNever Retry = iota
	// RetryReconnect is the end of a connection that does not come of the call: the same
	// may succeed on a new one. What was under way may have been carried out.
	RetryReconnect
	// RetryLater is a call that did nothing, or what a second one may do again: the same
	// may succeed later, when others have given something back.
	RetryLater
)

var retries = [...]string{"never", "reconnect", "later"}

// String is the last word of the constant's name.
func (r Retry) String() string { return retries[r] }

// Retryable reports whether the same call, made again later on the same object, may
// succeed: a loop that waits while it is true does not wait for what cannot come. It
// neither blocks nor allocates; any goroutine.
func Retryable(err error) bool { return RetryOf(err) == RetryLater }

// RetryOf tells what trying again takes after err, for all errors of this module however
// they are wrapped; of several joined the worst counts. An error whose type has a method
// Retry() Retry is asked. RetryNever for nil. Otherwise as [Retryable].
func RetryOf(err error) Retry {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) { // the caller's own word
		return RetryNever
	}
	r, _ := retryOf(err)
	return r
}

// scarce are the errnos of what others may give back, or repair; the rest says nothing.
var scarce = []syscall.Errno{
	syscall.EBUSY, syscall.ENOMEM, syscall.ENOBUFS,
	syscall.ECONNREFUSED, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTUNREACH,
}

// retryOf is RetryOf, and whether anything in err has an answer.
func retryOf(err error) (r Retry, said bool) {
	if t, ok := err.(interface{ Temporary() bool }); ok && t.Temporary() { // the network's, and some errnos
		return RetryLater, true
	}
	switch e := err.(type) { //nolint:errorlint // it unwraps by itself, and takes the worst of several
	case *sentinel.Error:
		return Retry(e.Retry), true
	case interface{ Retry() Retry }:
		return e.Retry(), true
	case syscall.Errno:
		return RetryLater, slices.Contains(scarce, e)
	case interface{ Unwrap() error }:
		return retryOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			if a, ok := retryOf(each); ok && (!said || a < r) {
				r, said = a, true
			}
		}
	}
	return r, said
}
