package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
)

// Rule: a classification is found however the error is wrapped, and the worst of several counts.
// (A table of all sentinels and types is in package runtime.)
func TestRetryOf(t *testing.T) {
	op := func(err error, errno syscall.Errno) error { return &OpError{Op: "ibv_x", Err: err, Errno: errno} }
	flushed := func(cause error) error { return &WCError{Status: WCWRFlushErr, Cause: cause} }
	unreachable := &WCError{Status: WCRetryExcErr}
	for _, c := range []struct {
		err  error
		want Retry
	}{
		{nil, RetryNever},
		{errors.New("of somebody else"), RetryNever},
		{context.Canceled, RetryNever},
		{fmt.Errorf("%w: %w", ErrBusy, context.DeadlineExceeded), RetryNever},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", ErrBusy)), RetryLater},
		{fmt.Errorf("%w: %w", ErrBusy, errors.New("that says nothing")), RetryLater},
		{errors.Join(ErrBusy, unreachable), RetryReconnect},
		{errors.Join(ErrBusy, unreachable, ErrClosed), RetryNever},
		{errors.Join(nil, ErrBusy, nil), RetryLater},
		{op(nil, syscall.ENOMEM), RetryLater},
		{op(nil, syscall.EAGAIN), RetryLater},
		{op(nil, syscall.EINVAL), RetryNever},
		{op(ErrBusy, syscall.EINVAL), RetryLater},
		{op(ErrInvalid, syscall.EBUSY), RetryNever},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, RetryLater},
		{&net.DNSError{IsTemporary: true}, RetryLater},
		{&net.DNSError{IsNotFound: true}, RetryNever},
		{flushed(nil), RetryReconnect},
		{flushed(errors.New("that says nothing")), RetryReconnect},
		{flushed(unreachable), RetryReconnect},
		{flushed(ErrClosed), RetryNever},
	} {
		if got := RetryOf(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
		if Retryable(c.err) != (c.want == RetryLater) {
			t.Errorf("%v: Retryable is %v", c.err, Retryable(c.err))
		}
	}
	err := fmt.Errorf("a: %w", errors.Join(flushed(unreachable), ErrBusy))
	if n := testing.AllocsPerRun(100, func() { Retryable(err) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Rule: no status permits a repetition on the same queue pair, which has failed; an invalid
// request is never repeated; an expired timeout is a timeout.
func TestRetryOfStatus(t *testing.T) {
	reconnect := []WCStatus{WCWRFlushErr, WCBadRespErr, WCRemOpErr, WCRetryExcErr, WCRNRRetryExcErr, WCRemAbortErr, WCFatalErr,
		WCRespTimeoutErr, WCGeneralErr, WCTMErr, WCTMRndvIncomplete}
	timeouts := []WCStatus{WCRetryExcErr, WCRNRRetryExcErr, WCRespTimeoutErr}
	for s := WCStatus(1); s < NumWCStatus; s++ {
		want := RetryNever
		if slices.Contains(reconnect, s) {
			want = RetryReconnect
		}
		for _, err := range []error{&WCError{Status: s}, &WCError{Status: WCWRFlushErr, Cause: &WCError{Status: s}}} {
			if got := RetryOf(err); got != want {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
			var ne net.Error
			late := slices.Contains(timeouts, s)
			if !errors.As(err, &ne) || ne.Timeout() != late || errors.Is(err, os.ErrDeadlineExceeded) != late || ne.Temporary() { //nolint:staticcheck // programs that ask it get an answer
				t.Errorf("%v: a net.Error is %v; want a timeout: %v", err, ne, late)
			}
		}
	}
}
