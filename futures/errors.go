package futures

import (
	"context"
	"errors"
)

// ErrNilContext is returned for a nil context by every function that takes one, before any other
// check: nothing is begun and nothing is consumed.
var ErrNilContext = errors.New("nil context")

// whyEnded returns the error of ctx, whose channel was closed. It never returns nil.
func whyEnded(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled // a faulty context: it has ended and Err returns nil
}

// MisuseError reports a use of a handle that its state does not allow. The package's misuse errors
// are the variables below; errors.As with a *MisuseError distinguishes them from an operation's own
// error.
type MisuseError struct{ rule string }

// Error returns the rule that was broken. It never blocks and may be called from any goroutine.
func (e *MisuseError) Error() string { return "futures: " + e.rule }

var (
	// ErrInvalid is returned by a zero handle: it never belonged to an operation.
	ErrInvalid error = &MisuseError{"zero handle: it belongs to no operation"}

	// ErrConsumed is returned by a handle after its result was taken (by Await, Poll, Then, Map,
	// All, Any), and after the result of a discarded future was disposed of.
	ErrConsumed error = &MisuseError{"handle used after its result was taken"}

	// ErrDiscarded is returned by a handle between Discard and the settling of its promise. After
	// the settling the error is ErrConsumed.
	ErrDiscarded error = &MisuseError{"handle used after Discard"}

	// ErrAwaited is returned to a second waiter while the first still waits: on one future, on one
	// Group, or when a future is added to a second Group.
	ErrAwaited error = &MisuseError{"another waiter is already there"}

	// ErrEmpty is the result of Any without futures: none could settle first.
	ErrEmpty error = &MisuseError{"Any of no futures"}
)
