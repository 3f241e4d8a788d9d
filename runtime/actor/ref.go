package actor

import "context"

// Ref names an actor to those who send it messages. It is a small value, copies
// name the same actor, and it may be kept as long as one likes: an actor that has
// ended answers ErrStopped. The zero Ref is nobody (ErrNoActor). All methods may
// be called from any goroutine.
type Ref[M any] struct{ cell *cell[M] }

// Tell sends m to the actor. When it returns nil, m is handled once, or reported to
// Config.DeadLetters once. What one goroutine tells one actor is handled in the order of
// the calls. It allocates nothing.
//
// With a full mailbox it does what Options.Overflow says; only Wait waits, on ctx, and
// never in a handler. From one, or from a goroutine that it waits for, give the
// handler's context, or one made from it.
//
// Errors: ErrStopped once Stop was called or the actor has ended; ErrMailboxFull (Fail);
// ErrWouldDeadlock and the context's (Wait). With an error m was not accepted.
func (r Ref[M]) Tell(ctx context.Context, m M) error {
	if r.cell == nil {
		return ErrNoActor
	}
	return r.cell.tell(ctx, envelope[M]{m: m})
}

// Stop stops the actor gently: from now on Tell answers ErrStopped, what is in the
// mailbox is handled, operations under way complete, then its children are stopped in
// the same way and its own connections are closed. It does not wait: see Done. Timers are
// stopped, and what Dial and Accept have not come to is given up.
func (r Ref[M]) Stop() {
	if r.cell != nil {
		r.cell.requestStop(stopDrain)
	}
}

// StopNow stops the actor after what it is handling: the rest of the mailbox and
// what still completes are reported to Config.DeadLetters, its own connections
// are aborted, its children are stopped in the same way. It does not wait: see Done.
func (r Ref[M]) StopNow() {
	if r.cell != nil {
		r.cell.requestStop(stopNow)
	}
}

// Done is closed when the actor has ended: its last handler has returned, and
// nothing that it began is left. Nil for the zero Ref.
func (r Ref[M]) Done() <-chan struct{} {
	if r.cell == nil {
		return nil
	}
	return r.cell.gone
}

// ID is the actor's number in its system, from 1; 0 for the zero Ref.
func (r Ref[M]) ID() uint64 {
	if r.cell == nil {
		return 0
	}
	return r.cell.id
}

// Name is the actor's name.
func (r Ref[M]) Name() string {
	if r.cell == nil {
		return "nobody"
	}
	return r.cell.opt.Name
}

// Waiting is how many messages are in the mailbox right now.
func (r Ref[M]) Waiting() int {
	if r.cell == nil {
		return 0
	}
	return r.cell.box.Len()
}
