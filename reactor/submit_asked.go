package reactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// DoneContext is a context reduced to its Done channel. The methods of a context may be user code:
// they may panic, end the goroutine, block, or need a lock that the caller holds. So a function
// that acquires resources (a credit, a lease, a slot, the turn) calls these methods only while it
// holds no resource. The function calls Done once, in DoneOf, before it acquires the first
// resource. It calls Err, in Cause, after it has given back the last resource. Between the two
// calls, the function and its callees use only the DoneContext:
//
//	w := DoneOf(ctx) ──> acquire, wait, give back with w ──> w.Cause(ctx, err)
//
// A DoneContext is a single pointer, so converting it to an interface does not allocate.
type DoneContext <-chan struct{}

// errContextDone is the error of a DoneContext that has ended. Cause replaces errContextDone by the
// error of the context from which the DoneContext was made.
var errContextDone = errors.New("the context ended")

// DoneOf returns the Done channel of ctx as a DoneContext, or ErrNilContext. Call DoneOf before any
// resource is acquired, because ctx.Done may panic or end the goroutine.
func DoneOf(ctx context.Context) (DoneContext, error) {
	if w, ok := ctx.(DoneContext); ok {
		return w, nil
	}
	if ctx == nil {
		return nil, ErrNilContext
	}
	return ctx.Done(), nil
}

// Unended is DoneOf for a call that starts something: if ctx has ended, it returns the error of ctx, and the call starts
// nothing. It calls no method of ctx but Done, until ctx has ended. For a context that cannot end, and for a DoneContext, whose
// maker has called Unended, it does no more than DoneOf.
func Unended(ctx context.Context) (DoneContext, error) {
	if w, ok := ctx.(DoneContext); ok {
		return w, nil
	}
	w, err := DoneOf(ctx)
	if w != nil {
		select {
		case <-w:
			err = w.cause(ctx, errContextDone)
		default:
		}
	}
	return w, err
}

// Cause returns ctx.Err() if err is errContextDone. If err wraps errContextDone, the result wraps
// err and ctx.Err(). If err is another error, or if ctx is itself a DoneContext, Cause returns err.
// w must be the DoneContext of ctx.
func (w DoneContext) Cause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return w.cause(ctx, err)
}

func (w DoneContext) cause(ctx context.Context, err error) error { // separate, so that Cause is inlined
	if !errors.Is(err, errContextDone) {
		return err
	}
	cause := ctx.Err()
	if cause == nil { // a faulty context: Done is closed, but Err returns nil
		cause = context.Canceled
	}
	if errors.Is(cause, errContextDone) { // ctx is itself a DoneContext: a function further up the stack replaces errContextDone
		return err
	}
	// If err is errContextDone itself, return only the context's error. If err wraps errContextDone,
	// keep err in the result, because its text names the item for which the call waited: a slot or a credit.
	if err == errContextDone { //nolint:errorlint // a wrapper of errContextDone must not match here
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Done implements [context.Context], as do Err, Deadline and Value.
func (w DoneContext) Done() <-chan struct{} { return w }

// Err returns errContextDone if the context has ended, for any reason. Otherwise it returns nil.
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

// Await waits until f is settled or ctx ends. w must be the DoneContext of ctx. No other goroutine
// may use f. If ctx ends first, Await discards the future, and the operation goes on.
func Await[T any](ctx context.Context, w DoneContext, f futures.Future[T]) (v T, err error) {
	if v, err = f.Await(w); err != nil {
		f.Discard() // no effect if the future was settled
		err = w.Cause(ctx, err)
	}
	return v, err
}
