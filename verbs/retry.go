package verbs

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sentinel"
)

// Retry is the condition under which an operation can be tried again.
type Retry uint8

// The values of Retry, the worst first.
const (
	// RetryNever is an error that would recur: a mistake in the call, a feature that the device
	// lacks, an object that is closed here, a context that has ended. It includes every unknown
	// error, and one that leaves open whether the call was carried out.
	RetryNever Retry = iota
	// RetryReconnect is the end of a connection for a reason other than the call: the same call
	// may succeed on a new connection. Outstanding requests may have been carried out.
	RetryReconnect
	// RetryLater is a call that did nothing or may safely be repeated: it may succeed later, when
	// other users have freed something.
	RetryLater
)

var retries = [...]string{"never", "reconnect", "later"}

// String is the last word of the constant's name.
func (r Retry) String() string { return retries[r] }

// Retryable reports whether the same call, made again later on the same object, may succeed. A
// loop that retries while it is true does not wait for the impossible. It neither blocks nor
// allocates; any goroutine may call it.
func Retryable(err error) bool { return RetryOf(err) == RetryLater }

// RetryOf classifies err, for all errors of this module however they are wrapped; of several
// joined errors the worst counts. For an error whose type has a method Retry() Retry it calls
// that. It returns RetryNever for nil. Otherwise as [Retryable].
func RetryOf(err error) Retry {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) { // the caller ended it
		return RetryNever
	}
	r, _ := retryOf(err)
	return r
}

// scarce are the errnos of a lack that others may relieve or repair; other errnos are not
// classified.
var scarce = []syscall.Errno{
	syscall.EBUSY, syscall.ENOMEM, syscall.ENOBUFS,
	syscall.ECONNREFUSED, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTUNREACH,
}

// retryOf is RetryOf, and reports whether any error in err is classified.
func retryOf(err error) (r Retry, said bool) {
	if t, ok := err.(interface{ Temporary() bool }); ok && t.Temporary() { // network errors, and some errnos
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
