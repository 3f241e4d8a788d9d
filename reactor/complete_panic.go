package reactor

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic of user code that a reactor called. Config.OnPanic receives it. If the user
// code was a sink, the sink's queue fails with the PanicError as the cause.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the panicking goroutine's stack, as from debug.Stack
}

// Error describes the panic, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("user code panicked: %v", e.Value) }

// Unwrap returns the value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recovered makes a PanicError of v, calls take with it on a new goroutine, and returns it. Call
// Recovered in the deferred function that recovered v: there the stack still shows the place of the
// panic.
//
// If take is nil, the program ends with the panic, as it would have without a recover, and
// Recovered does not return. The panic is raised on a new goroutine, because a caller of Recovered
// may recover panics (as net/http does around its handlers).
func Recovered(v any, take func(*PanicError)) *PanicError {
	e := &PanicError{Value: v, Stack: debug.Stack()}
	if take == nil {
		go func() { panic(panicValue{e}) }()
		select {}
	}
	go take(e)
	return e
}

// panicValue is the value of a panic that is raised again. It prints with the stack of the first
// panic.
type panicValue struct{ *PanicError }

// Error returns the value and the stack.
func (e panicValue) Error() string { return fmt.Sprintf("%v\n\n%s", e.Value, e.Stack) }
