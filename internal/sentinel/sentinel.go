package sentinel

import (
	"net"
	"os"
)

// Error is a sentinel. It is immutable.
type Error struct {
	// Retry is a verbs.Retry: what trying again takes.
	Retry uint8
	text  string
	like  []error
}

// Never is a sentinel with which trying again does not help. errors.Is matches it with
// each of like, too, as it does for the functions below.
func Never(text string, like ...error) error { return &Error{0, text, like} }

// Reconnect is a sentinel of what has ended: the same may succeed on a new connection.
func Reconnect(text string, like ...error) error { return &Error{1, text, like} }

// Later is a sentinel of a call that has done nothing and may succeed later.
func Later(text string, like ...error) error { return &Error{2, text, like} }

// Closed says that something is closed here; rooms give it names of their own.
var Closed = Never("verbena: closed", net.ErrClosed, os.ErrClosed)

// Error is the text.
func (e *Error) Error() string { return e.text }

// Unwrap is what it matches besides itself. As os.ErrDeadlineExceeded is a net.Error, what
// matches that is found by errors.As as one that has timed out.
func (e *Error) Unwrap() []error { return e.like }
