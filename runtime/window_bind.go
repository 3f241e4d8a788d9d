package runtime

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Bind gives the peer access to the n bytes of r at offset off. The argument access has one or more
// of REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, FLUSH_GLOBAL and FLUSH_PERSISTENT. The region needs
// AccessMWBind. For REMOTE_WRITE and REMOTE_ATOMIC the region also needs LOCAL_WRITE, and for a FLUSH
// the same FLUSH access.
//
// Bind returns the descriptor for the peer, and the future of the binding. It waits for room in the
// send queue until ctx ends, but does not wait for the end of the binding. The caller may send the
// descriptor to the peer over this connection at once, because the device completes the binding
// before later sends.
//
// Errors: ErrWindowState if the window is bound, or a Bind or Invalidate is in progress;
// ErrWindowClosed; *RangeError; ErrTooLarge for more bytes than a window of the device can have
// (DeviceAttr.MaxMWSize); ErrPermission; ErrReleased; ErrInvalid for invalid arguments or a region of
// another runtime; the connection's cause; the context's error.
//
// Implements: ibv_post_send, BIND_MW.
func (w *Window) Bind(ctx context.Context, r *Region, off, n int, access verbs.AccessFlags) (Remote, Future, error) {
	return w.bind(ctx, binding{r, off, n, access}, 0, submitOpts{})
}

// binding holds the parameters of a Bind.
type binding struct {
	r      *Region
	off, n int
	access verbs.AccessFlags
}

// binding.part returns the bytes of the region that b opens to the peer, or an error if b is not
// permitted.
func (b *binding) part() (part Slice, err error) {
	const flushes = verbs.AccessFlushGlobal | verbs.AccessFlushPersistent
	const may = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | flushes
	if b.access == 0 || b.access&^may != 0 {
		return part, fmt.Errorf("%w: a window with access %v", verbs.ErrInvalid, b.access)
	}
	if b.r == nil {
		return part, fmt.Errorf("%w: a window on a nil region", verbs.ErrInvalid)
	}
	need := verbs.AccessMWBind | b.access&flushes
	if b.access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 {
		need |= verbs.AccessLocalWrite
	}
	if b.r.access&need != need {
		return part, fmt.Errorf("%w: the window needs a region with %v, the region has %v", ErrPermission, need, b.r.access)
	}
	if part, err = b.r.Slice(b.off, b.n); err == nil && b.n == 0 {
		err = fmt.Errorf("%w: a window on no bytes", verbs.ErrInvalid)
	}
	if most := b.r.m.windowMost; err == nil && most > 0 && uint64(b.n) > most {
		err = fmt.Errorf("%w: a window of %d bytes, the device has windows of at most %d", ErrTooLarge, b.n, most)
	}
	return part, err
}

func (w *Window) bind(ctx context.Context, b binding, flags verbs.SendFlags, to submitOpts) (at Remote, f Future, err error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return at, f, err
	}
	part, err := b.part()
	if err != nil {
		return at, f, err
	}
	at, f, err = w.bindPart(asked, part, b.access, flags, to)
	return at, f, asked.Cause(ctx, err)
}

// Window.bindPart binds the window to part, which is not empty, and whose registration permits that.
func (w *Window) bindPart(asked reactor.DoneContext, part Slice, access verbs.AccessFlags, flags verbs.SendFlags, to submitOpts) (Remote, Future, error) {
	err := part.of(w.c.rt.mem)
	if err == nil {
		err = part.begin()
	}
	if err != nil {
		return Remote{}, Future{}, err
	}
	old, err := w.move(windowFree, windowBinding, part.lease)
	if err != nil {
		part.lease.End()
		return Remote{}, Future{}, err
	}
	at := Remote{Addr: part.addr, Length: uint64(part.Len()), RKey: verbs.IncRKey(old.RKey), Access: access}
	f, err := w.post(asked, windowBound, windowFree, &reactor.Send{
		Opcode: verbs.WRBindMW, Flags: flags,
		Bind: &reactor.Bind{Window: w.mw, Region: part.lease.home.registration(), RKey: at.RKey, Addr: at.Addr, Length: at.Length, Access: access},
	}, at, to)
	if err != nil {
		return Remote{}, Future{}, err
	}
	return at, f, nil
}

// Invalidate unbinds the window. When the future is settled without an error, the peer's key is
// invalid, and no access by the peer is in progress. Invalidate waits for room in the send queue
// until ctx ends. If the window is closed, Invalidate returns ErrWindowClosed. If the window is not
// bound, for example because a message that was received has ended the binding, Invalidate returns
// ErrWindowState.
//
// On the software RNIC the future is also settled without an error if the peer ends the binding at the same
// time. On other devices use Invalidate only if the peer does not end the binding; see Window. Close and
// Revoke need no request, and fail on no device for that reason.
//
// Implements: ibv_post_send, LOCAL_INV.
func (w *Window) Invalidate(ctx context.Context) (Future, error) {
	return w.invalidate(ctx, 0, submitOpts{})
}

func (w *Window) invalidate(ctx context.Context, flags verbs.SendFlags, to submitOpts) (Future, error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return Future{}, err
	}
	at, err := w.move(windowBound, windowUnbinding, nil)
	if err != nil {
		return Future{}, err
	}
	f, err := w.post(asked, windowFree, windowBound, &reactor.Send{Opcode: verbs.WRLocalInv, Flags: flags, Invalidate: at.RKey}, at, to)
	return f, asked.Cause(ctx, err)
}

// windowOp is a binding or an invalidation in progress.
type windowOp struct {
	w               *Window
	promise         futures.Promise[Result]
	sink            Sink        // if not nil, gets the result in place of the promise
	then, onFailure windowState // states after success and after failure
}

// Window.post submits s, which binds or invalidates the window. It also sets w.at to the given
// range and key. When s has succeeded, the window enters the first of the given states. When s has
// failed, or could not be submitted, the window enters the second. If the peer has invalidated the key
// meanwhile, the window enters the state free.
func (w *Window) post(asked reactor.DoneContext, then, no windowState, s *reactor.Send, at Remote, to submitOpts) (f Future, err error) {
	op := &windowOp{w: w, then: then, onFailure: no, sink: to.sink}
	if op.sink == nil {
		op.promise, f = w.c.sh.r.Futures().New(w.c.sh.r.Driver())
	}
	to.sink = op
	w.mu.Lock()
	old := w.at
	if w.at = at; then == windowBound {
		w.gone = false // a new key
	}
	w.mu.Unlock()
	if _, err = w.c.submit(asked, s, reactor.Payload{}, to); err == nil {
		return f, nil
	}
	w.mu.Lock()
	w.at = old
	w.leave(no)
	w.mu.Unlock()
	if op.sink == nil {
		op.promise.Settle(Result{}, err)
		f.Discard()
	}
	return Future{}, err
}

// Complete implements reactor.Sink.
func (op *windowOp) Complete(t SinkContext, r Result, err error) {
	to := op.then
	op.w.mu.Lock()
	if err != nil {
		to = op.onFailure
	}
	op.w.leave(to)
	op.w.mu.Unlock()
	if op.sink != nil {
		op.sink.Complete(t, r, err)
		return
	}
	op.promise.Settle(r, err)
}
