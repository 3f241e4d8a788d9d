package actor

import "context"

// Ref is an actor's address. It is a small value; copies name the same actor. It may be kept
// without limit: after the actor has ended, Tell returns ErrStopped. The zero Ref names no actor:
// Tell returns ErrNoActor. All methods may be called from any goroutine.
type Ref[M any] struct{ cell *cell[M] }

// Tell sends m to the actor. When it returns nil, m is handled once, or reported to
// Config.DeadLetters once. Messages of one goroutine to one actor are handled in the order of the
// calls. It allocates nothing.
//
// If the mailbox is full, Options.Overflow selects what Tell does. With Wait, Tell blocks until
// there is room or ctx ends; otherwise it never blocks. A handler never blocks in Tell. A handler,
// and a goroutine that a handler waits for, must pass the handler's Context or one derived from it.
//
// Errors: ErrStopped after Stop or StopNow was called or the actor has ended; with Fail
// ErrMailboxFull; with Wait ErrWouldDeadlock in a handler, and the context's error. With an error m
// was not accepted.
func (r Ref[M]) Tell(ctx context.Context, m M) error {
	if r.cell == nil {
		return ErrNoActor
	}
	return r.cell.tell(ctx, envelope[M]{m: m})
}

// Stop stops the actor gracefully. From now on Tell returns ErrStopped. Timers and the Dial and
// Accept calls in progress are canceled. The actor handles its mailbox, and its outstanding
// operations complete. After that its children are stopped in the same way and its own connections
// are closed. Stop does not wait for the end: see Done.
func (r Ref[M]) Stop() {
	if r.cell != nil {
		r.cell.requestStop(stopDrain)
	}
}

// StopNow stops the actor after the message or event that it is handling. The rest of the mailbox
// and later completions are reported to Config.DeadLetters, the actor's own connections are
// aborted, and its children are stopped in the same way. StopNow does not wait for the end: see
// Done.
func (r Ref[M]) StopNow() {
	if r.cell != nil {
		r.cell.requestStop(stopNow)
	}
}

// Done returns a channel that is closed when the actor has ended: its last handler has returned and
// nothing that it began is left. It returns nil for the zero Ref.
func (r Ref[M]) Done() <-chan struct{} {
	if r.cell == nil {
		return nil
	}
	return r.cell.gone
}

// ID returns the actor's number in its system, from 1; 0 for the zero Ref.
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
