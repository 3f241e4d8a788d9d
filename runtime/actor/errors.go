package actor

import (
	"errors"
	"fmt"
)

// The sentinels of this room.
var (
	ErrConfig        = errors.New("actor: bad configuration")
	ErrClosed        = errors.New("actor: the system is closed")
	ErrStopped       = errors.New("actor: stopped")
	ErrMailboxFull   = errors.New("actor: mailbox full")
	ErrWouldDeadlock = errors.New("actor: a handler may not wait for actors")
	ErrNoReply       = errors.New("actor: the handler will not reply")
	ErrNoActor       = errors.New("actor: the zero Ref is nobody")
	ErrTooMany       = errors.New("actor: too many operations under way")
	ErrUnhandled     = errors.New("actor: the handler has no method for this")
	ErrRestarted     = errors.New("actor: of an instance that has failed")
	ErrEscalated     = errors.New("actor: a child could not be restarted")
	ErrGoexit        = errors.New("actor: the handler ended its goroutine")
)

// errNoRoomInHandler is made once: Tell allocates nothing.
var errNoRoomInHandler = fmt.Errorf("%w: the mailbox is full, and Tell would wait for room", ErrWouldDeadlock)

// PanicError is a panic of a handler.
type PanicError struct {
	Value any
	Stack []byte // of the panicking goroutine
}

// Error says what was panicked with; the stack is in Stack.
func (e *PanicError) Error() string { return fmt.Sprintf("actor: the handler panicked: %v", e.Value) }

// Unwrap is the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
