package reactor

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic of user code that a reactor called: what Config.OnPanic is given,
// and the cause of the connection whose sink it was.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // of the goroutine, from where it panicked, as debug.Stack has it
}

// Error is what panic was called with, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("user code panicked: %v", e.Value) }

// Unwrap is the value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recovered tells take, on a goroutine of its own, of a panic with value v. It is for the
// deferred function that has recovered v: the stack still shows where that came from.
//
// If take is nil it does not return, and the program ends with the panic, as it would have
// without a recover. The goroutine may be a stranger's, whose owner would recover (net/http
// does with its handlers'): so another one panics.
func Recovered(v any, take func(*PanicError)) *PanicError {
	e := &PanicError{Value: v, Stack: debug.Stack()}
	if take == nil {
		go func() { panic(panicValue{e}) }()
		select {}
	}
	go take(e)
	return e
}

// panicValue is a panic that was raised again. It is printed with the stack of the first, as
// the second one's says nothing.
type panicValue struct{ *PanicError }

// Error is the value and the stack.
func (e panicValue) Error() string { return fmt.Sprintf("%v\n\n%s", e.Value, e.Stack) }
