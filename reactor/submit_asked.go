package reactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// DoneContext is a context reduced to its Done channel. A context's methods may be user code: they
// may panic, end the goroutine, block, or need something that their caller holds. So a function
// that acquires something on its way (a credit, a lease, a slot, the turn) calls them only
// while it holds nothing: Done once, in Ask, before it acquires anything, and Err in Why, after
// it gave everything back. In between, it and its callees use only the Asked:
//
//	Ask(ctx) ──> acquire, wait, give back with w ──> w.Why(ctx, err)
//
// An Asked is a single pointer, so converting it to an interface does not allocate.
type DoneContext <-chan struct{}

// errContextDone is the error of an Asked that has ended; Why replaces it by the context's error.
var errContextDone = errors.New("given up")

// DoneOf returns the Done channel of ctx as an Asked, or ErrNilContext. If ctx.Done does not return,
// nothing has been acquired.
func DoneOf(ctx context.Context) (DoneContext, error) {
	if w, ok := ctx.(DoneContext); ok {
		return w, nil
	}
	if ctx == nil {
		return nil, ErrNilContext
	}
	return ctx.Done(), nil
}

// Cause returns err, with errContextDone replaced by ctx.Err(). w must be the Asked of ctx.
func (w DoneContext) Cause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return w.cause(ctx, err)
}

func (w DoneContext) cause(ctx context.Context, err error) error { // separate, so that Why is inlined
	if !errors.Is(err, errContextDone) {
		return err
	}
	cause := ctx.Err()
	if cause == nil { // it has ended, but Err does not say so
		cause = context.Canceled
	}
	if errors.Is(cause, errContextDone) { // ctx is an Asked, whose caller calls Why
		return err
	}
	if err == errContextDone { //nolint:errorlint // itself says nothing besides; wrapped, it does
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Done implements [context.Context], as do Err, Deadline and Value.
func (w DoneContext) Done() <-chan struct{} { return w }

// Err is not nil once the context has ended; it does not give the reason.
func (w DoneContext) Err() error {
	select {
	case <-w:
		return errContextDone
	default:
		return nil
	}
}

// Deadline reports no deadline.
func (w DoneContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value returns nil.
func (w DoneContext) Value(any) any { return nil }

// Await waits on w, the Asked of ctx, for a future that no other goroutine uses. If ctx ends
// first, Await discards the future; the operation goes on.
func Await[T any](ctx context.Context, w DoneContext, f futures.Future[T]) (v T, err error) {
	if v, err = f.Await(w); err != nil {
		f.Discard() // no effect if the future was settled
		err = w.Cause(ctx, err)
	}
	return v, err
}
