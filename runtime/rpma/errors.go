package rpma

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Code is the kind of an [Error], with the number that librpma returns. Codes are errors for errors.Is.
type Code int32

// The codes of errors.
const (
	// ErrUnknown is an error without a known reason.
	ErrUnknown Code = -100000 - iota
	// ErrNotSupported means that the device, or the peer's memory, does not support the call.
	ErrNotSupported
	// ErrProvider means that the runtime or the device has refused the call, or could not carry it out. The
	// Error has the reason, and the errno that the C functions set.
	ErrProvider
	// ErrNoMemory means that Config.Memory.MaxBytes of the runtime is reached.
	ErrNoMemory
	// ErrInvalid is an invalid argument, or the use of an object after its end.
	ErrInvalid
	// ErrNoCompletion means that a CQ has no completion.
	ErrNoCompletion
	// ErrNoEvent means that a connection has no event, or an endpoint no request.
	ErrNoEvent
	// ErrAgain is a temporary error of the C library. No function of this package returns it.
	ErrAgain
	// ErrSharedChannel is the error of CQ.Wait for a CQ whose completion channel is shared: see Conn.Wait.
	ErrSharedChannel
	// ErrNotSharedChannel is the error of Conn.Wait without a shared completion channel: see CQ.Wait.
	ErrNotSharedChannel
)

// kind is what is known about a code.
type kind struct {
	text  string
	errno syscall.Errno // for an Error without an errno of its own
}

var kinds = map[Code]kind{
	0:                   {"Success", 0},
	ErrUnknown:          {"Unknown error", 0},
	ErrNotSupported:     {"Not supported", syscall.EOPNOTSUPP},
	ErrProvider:         {"Provider error occurred", syscall.EIO},
	ErrNoMemory:         {"Out of memory", syscall.ENOMEM},
	ErrInvalid:          {"Invalid argument", syscall.EINVAL},
	ErrNoCompletion:     {"No next completion available", syscall.EAGAIN},
	ErrNoEvent:          {"No next event available", syscall.EAGAIN},
	ErrAgain:            {"Temporary error, try again", syscall.EAGAIN},
	ErrSharedChannel:    {"Completion channel is shared", syscall.EINVAL},
	ErrNotSharedChannel: {"Completion channel is not shared", syscall.EINVAL},
}

// Error returns librpma's text. An unknown code has the text of ErrUnknown.
//
// Implements: rpma_err_2str.
func (c Code) Error() string {
	if k, ok := kinds[c]; ok {
		return k.text
	}
	return kinds[ErrUnknown].text
}

// Retry returns RetryLater if the same call may succeed later: see runtime.RetryOf.
func (c Code) Retry() verbs.Retry {
	if c == ErrNoCompletion || c == ErrNoEvent || c == ErrAgain {
		return verbs.RetryLater
	}
	return verbs.RetryNever
}

// Error is a call that has failed. errors.Is matches its Code, its Errno, and what Err matches.
type Error struct {
	Op    string // the C function
	Code  Code
	Errno syscall.Errno // 0 only with ErrUnknown
	Err   error         // the reason; nil if the code says it all
}

// Error names the call, the code and the reason.
func (e *Error) Error() string {
	s := e.Op + ": " + e.Code.Error()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is the code or the errno, or what the errno matches. It allocates nothing: a
// program that polls asks for ErrNoCompletion after each call.
func (e *Error) Is(target error) bool {
	return target == e.Code || e.Errno != 0 && (target == e.Errno || e.Errno.Is(target))
}

// As stores the code or the errno, for errors.As.
func (e *Error) As(target any) bool {
	switch t := target.(type) {
	case *Code:
		*t = e.Code
	case *syscall.Errno:
		if e.Errno == 0 {
			return false
		}
		*t = e.Errno
	default:
		return false
	}
	return true
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Retry is that of the reason, if there is one.
func (e *Error) Retry() verbs.Retry {
	if e.Err == nil || e.Code.Retry() == verbs.RetryLater {
		return e.Code.Retry()
	}
	return verbs.RetryOf(e.Err)
}

// fail makes an error. The reason err may be nil. The error of a provider is logged.
func fail(op string, code Code, err error) error {
	e := &Error{Op: op, Code: code, Errno: kinds[code].errno, Err: err}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		e.Errno = errno
	} else if errors.Is(err, runtime.ErrQueueFull) || errors.Is(err, runtime.ErrRecvFull) {
		e.Errno = syscall.ENOMEM // what ibv_post_send returns for a full queue
	} else if code == ErrProvider && (errors.Is(err, verbs.ErrInvalid) || errors.Is(err, runtime.ErrConfig) || errors.Is(err, runtime.ErrMode)) {
		e.Errno = syscall.EINVAL
	}
	if code == ErrProvider || code == ErrUnknown {
		logf(LevelError, op, e)
	}
	return e
}

// invalid makes an ErrInvalid.
func invalid(op, format string, args ...any) error {
	return fail(op, ErrInvalid, fmt.Errorf(format, args...))
}

// unsupported makes an ErrNotSupported, and logs it.
func unsupported(op, why string) error {
	err := fail(op, ErrNotSupported, errors.New(why))
	logf(LevelError, op, err)
	return err
}

// classified makes an error of err, which runtime has returned. It returns nil for nil.
func classified(op string, err error) error {
	if err == nil {
		return nil
	}
	_, full := errors.AsType[*runtime.NoMemoryError](err)
	_, own := errors.AsType[*runtime.OwnMemoryError](err)
	switch {
	case full:
		return fail(op, ErrNoMemory, err)
	case own:
		return fail(op, ErrInvalid, err)
	case errors.Is(err, verbs.ErrNotSupported):
		return fail(op, ErrNotSupported, err)
	}
	if _, device := errors.AsType[*verbs.OpError](err); !device {
		for _, mistake := range mistakes {
			if errors.Is(err, mistake) {
				return fail(op, ErrInvalid, err)
			}
		}
	}
	return fail(op, ErrProvider, err)
}

// mistakes are the errors of runtime for arguments of the program.
var mistakes = []error{verbs.ErrInvalid, mem.ErrGoHeap, runtime.ErrPermission, runtime.ErrRemoteRange, runtime.ErrReleased, runtime.ErrTooLarge, runtime.ErrNilContext, reactor.ErrRequest}
