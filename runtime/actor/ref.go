package actor

import "context"

// Ref is an actor's address. It is a small value, and copies name the same actor. It may be kept
// after the actor has ended; Tell then returns ErrStopped. The zero Ref names no actor; its Tell
// returns ErrNoActor. All methods may be called from any goroutine.
type Ref[M any] struct{ cell *cell[M] }

// Tell sends m to the actor. If it returns nil, m is handled once, or reported to Config.DeadLetters
// once. Messages of one goroutine to one actor are handled in the order of the calls. In steady state
// Tell allocates nothing.
//
// If the mailbox is full, Options.Overflow selects what Tell does. With Wait, Tell blocks until there
// is room or ctx ends. Otherwise Tell never blocks, and in a handler it never blocks at all. A
// handler must pass its Context, or a context derived from it. So must any goroutine that the
// handler waits for.
//
// Errors: ErrStopped after Stop or StopNow was called or the actor has ended; ErrMailboxFull with
// Fail; with Wait, the context's error, or ErrWouldDeadlock in a handler. If Tell returns an error,
// m was not accepted.
func (r Ref[M]) Tell(ctx context.Context, m M) error {
	if r.cell == nil {
		return ErrNoActor
	}
	return r.cell.tell(ctx, &envelope[M]{m: m})
}

// Stop stops the actor gracefully. From now on Tell returns ErrStopped. Timers, and calls of Dial and
// Accept in progress, are canceled. The actor handles its mailbox, and its outstanding operations
// complete. After that, the actor's children are stopped in the same way, and the connections that it
// owns are closed. Stop does not wait until the actor has ended: see Done.
func (r Ref[M]) Stop() {
	if r.cell != nil {
		r.cell.requestStop(stopDrain)
	}
}

// StopNow stops the actor after the message or event that it is handling. From now on Tell returns
// ErrStopped, and the handler's Context has ended, so a method that waits with its Context returns. The
// rest of the mailbox and later completions are reported to Config.DeadLetters. The connections that
// the actor owns are aborted, and its children are stopped in the same way. StopNow does not wait until
// the actor has ended: see Done.
func (r Ref[M]) StopNow() {
	if r.cell != nil {
		r.cell.requestStop(stopNow)
	}
}

// Done returns a channel that is closed when the actor has ended: the last call of its handler has
// returned, and no operation, child, connection or timer of the actor is left. Done returns nil for
// the zero Ref.
func (r Ref[M]) Done() <-chan struct{} {
	if r.cell == nil {
		return nil
	}
	return r.cell.gone
}

// ID returns the actor's number in its system. Numbers begin with 1. ID returns 0 for the zero Ref.
func (r Ref[M]) ID() uint64 {
	if r.cell == nil {
		return 0
	}
	return r.cell.id
}

// Name returns the actor's name.
func (r Ref[M]) Name() string {
	if r.cell == nil {
		return "no actor"
	}
	return r.cell.opt.Name
}

// Waiting returns the number of messages in the mailbox.
func (r Ref[M]) Waiting() int {
	if r.cell == nil {
		return 0
	}
	return r.cell.box.Len()
}
