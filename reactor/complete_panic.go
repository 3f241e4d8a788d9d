package reactor

import (
	"fmt"
	"runtime/debug"
)

// PanicError describes a panic of user code that a reactor has called. Config.OnPanic receives the
// PanicError. If the user code was a sink, the sink's queue fails with the PanicError as its
// cause.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the panicking goroutine's stack, as from debug.Stack
}

// Error describes the panic, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("user code panicked: %v", e.Value) }

// Unwrap returns Value if Value is an error, and otherwise nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recovered returns a PanicError with the recovered value v. If take is not nil, Recovered also
// calls take(e) on a new goroutine, where e is this PanicError. Call Recovered in the deferred
// function that recovered v, because there the stack still shows the place of the panic.
//
// If take is nil, Recovered ends the program and does not return: it raises the panic again on a new
// goroutine. (On the calling goroutine a caller could recover the panic. For example, net/http
// recovers the panics of its handlers.)
func Recovered(v any, take func(*PanicError)) *PanicError {
	e := &PanicError{Value: v, Stack: debug.Stack()}
	if take == nil {
		go func() { panic(panicValue{e}) }()
		select {}
	}
	go take(e)
	return e
}

// panicValue is the value of a panic that Recovered raises again. Its text contains the stack of
// the first panic.
type panicValue struct{ *PanicError }

// Error returns the value and the stack.
func (e panicValue) Error() string { return fmt.Sprintf("%v\n\n%s", e.Value, e.Stack) }
