package reactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// Asked is the channel of a context, in the context's place. A context's methods may be
// user code: they may panic, end the goroutine, block, or want what their caller holds. So
// a function that takes something on its way (a credit, a lease, a slot, the turn) calls
// them when it has nothing: Done once, by Ask, before it takes anything, and Err by Why,
// after everything was given back. In between it, and what it calls, has only this:
//
//	Ask(ctx) ──> takes, waits, gives back on w ──> w.Why(ctx, err)
//
// An Asked is a pointer for the compiler, so that none is allocated for the interface.
type Asked <-chan struct{}

// errGivenUp is the error of an Asked that has ended; Why puts the context's in its place.
var errGivenUp = errors.New("given up")

// Ask asks ctx for its channel, or returns ErrNilContext. If Ask does not return, because
// of the context, nothing has happened.
func Ask(ctx context.Context) (Asked, error) {
	if w, ok := ctx.(Asked); ok {
		return w, nil
	}
	if ctx == nil {
		return nil, ErrNilContext
	}
	return ctx.Done(), nil
}

// Why is err, and where that is because the Asked has ended, the error of ctx, which it was
// asked of.
func (w Asked) Why(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return w.why(ctx, err)
}

func (w Asked) why(ctx context.Context, err error) error { // apart, so that Why is inlined
	if !errors.Is(err, errGivenUp) {
		return err
	}
	cause := ctx.Err()
	if cause == nil { // it has ended, and does not say so
		cause = context.Canceled
	}
	if errors.Is(cause, errGivenUp) { // it is an Asked, whose caller will say why
		return err
	}
	if err == errGivenUp { //nolint:errorlint // itself says nothing besides; wrapped, it does
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Done implements [context.Context], as do the others.
func (w Asked) Done() <-chan struct{} { return w }

// Err is not nil once the context has ended; it does not say why.
func (w Asked) Err() error {
	select {
	case <-w:
		return errGivenUp
	default:
		return nil
	}
}

// Deadline is none.
func (w Asked) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value is none.
func (w Asked) Value(any) any { return nil }

// Await waits on w, which was asked of ctx, for a future that nobody else has, and discards
// it when ctx ends first: what it is of goes on.
func Await[T any](ctx context.Context, w Asked, f futures.Future[T]) (v T, err error) {
	if v, err = f.Await(w); err != nil {
		f.Discard() // nothing, if it was settled
		err = w.Why(ctx, err)
	}
	return v, err
}
