package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// The sentinels of windows.
var (
	ErrWindowState  = errors.New("runtime: the window is not in a state for this")
	ErrWindowClosed = errors.New("runtime: window closed")
)

// windowState is where a window stands. Guarded by Window.mu.
//
//	           Bind             completed                Invalidate
//	(new) free ──────> binding ───────────> bound ───────────────────> unbinding ──┐
//	        ^             │ the peer invalidates │                       completed  │
//	        └─────────────┴──────────────────────┴─────────────────────────────────┘
//	any, Close or the end of the connection: closed
type windowState uint8

const (
	windowFree windowState = iota
	windowBinding
	windowBound
	windowUnbinding
	windowClosed
)

var windowStates = [...]string{"free", "being bound", "bound", "being invalidated", "closed"}

// Window opens a part of a region to the peer of one connection, and to no one
// else, for as long as it is bound: its key is another one each time, and dead
// as soon as the window is invalidated, here or by the peer. To open and to
// shut costs a work request, not a registration.
//
// Methods may be called from any goroutine. The caller closes it; the end of the
// connection does so too.
//
// Implements: struct ibv_mw, type 2.
type Window struct {
	c  *Conn
	mw verbs.MW

	mu    sync.Mutex // guards what follows; held for some instructions
	state windowState
	key   uint32
	gone  bool // the peer invalidated it before its binding was known to be done
	// under is the region's lease while the window is, or may be, bound there: the
	// region cannot be closed under it.
	under *lease
}

// NewWindow makes a window of this connection. It enters the kernel on a real
// device. Errors: the connection's cause; verbs.ErrNotSupported.
//
// Implements: ibv_alloc_mw.
func (c *Conn) NewWindow() (*Window, error) {
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	if err := c.Err(); err != nil {
		return nil, err
	}
	mw, err := c.rt.pd.AllocMW(verbs.MWType2)
	if err != nil {
		return nil, err
	}
	w := &Window{c: c, mw: mw, key: mw.RKey()}
	if c.windows == nil {
		c.windows = map[*Window]struct{}{}
	}
	c.windows[w] = struct{}{}
	return w, nil
}

// Bind opens n bytes of r from off to the peer with access, which holds
// REMOTE_READ, REMOTE_WRITE and REMOTE_ATOMIC only; r was made with
// AccessMWBind, and with LOCAL_WRITE if the peer shall write. It waits on ctx for
// room in the send queue, not for the binding. The descriptor may be sent to the
// peer over this connection at once: the binding is done before what is sent
// behind it.
//
// Errors: ErrWindowState unless it is free, *RangeError, ErrPermission,
// ErrReleased, the connection's cause.
//
// Implements: ibv_post_send, BIND_MW.
func (w *Window) Bind(ctx context.Context, r *Region, off, n int, access verbs.AccessFlags) (Remote, Future, error) {
	const may = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if access == 0 || access&^may != 0 {
		return Remote{}, Future{}, fmt.Errorf("%w: a window with access %v", verbs.ErrInvalid, access)
	}
	need := verbs.AccessMWBind
	if access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 {
		need |= verbs.AccessLocalWrite
	}
	if r.access&need != need {
		return Remote{}, Future{}, fmt.Errorf("%w: the window needs a region with %v, it has %v", ErrPermission, need, r.access)
	}
	part, err := r.Slice(off, n)
	if err != nil {
		return Remote{}, Future{}, err
	}
	if n == 0 {
		return Remote{}, Future{}, fmt.Errorf("%w: a window on no bytes", verbs.ErrInvalid)
	}
	key, err := w.move(windowFree, windowBinding)
	if err != nil {
		return Remote{}, Future{}, err
	}
	if err := part.begin(); err != nil {
		w.undo(windowFree)
		return Remote{}, Future{}, err
	}
	key = verbs.IncRKey(key)
	w.lay(part.lease)
	f, err := w.post(ctx, windowBound, windowFree, &reactor.Send{
		Opcode: verbs.WRBindMW,
		Bind:   &reactor.Bind{Window: w.mw, Region: r.mr, RKey: key, Addr: part.addr, Length: uint64(n), Access: access},
	}, key)
	if err != nil {
		return Remote{}, Future{}, err
	}
	return Remote{Addr: part.addr, Length: uint64(n), RKey: key, Access: access}, f, nil
}

// Invalidate shuts the window: when the future is settled the peer's key is
// dead, and no access of the peer's is under way. It waits on ctx for room in the
// send queue. ErrWindowState unless the window is bound.
//
// Implements: ibv_post_send, LOCAL_INV.
func (w *Window) Invalidate(ctx context.Context) (Future, error) {
	key, err := w.move(windowBound, windowUnbinding)
	if err != nil {
		return Future{}, err
	}
	return w.post(ctx, windowFree, windowBound, &reactor.Send{Opcode: verbs.WRLocalInv, Invalidate: key}, key)
}

// move takes the window from one state to the next and tells its key.
func (w *Window) move(from, to windowState) (key uint32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state == windowClosed:
		return 0, ErrWindowClosed
	case w.state != from:
		return 0, fmt.Errorf("%w: it is %s, not %s", ErrWindowState, windowStates[w.state], windowStates[from])
	}
	w.state, w.gone = to, false
	return w.key, nil
}

func (w *Window) undo(to windowState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enter(to)
}

// enter makes to the state, unless the window is closed; a free one lies on no
// region. Under mu.
func (w *Window) enter(to windowState) {
	if w.state == windowClosed {
		return
	}
	if w.state = to; to == windowFree || to == windowClosed {
		w.under.End()
		w.under = nil
	}
}

// lay notes the lease of the region to be bound.
func (w *Window) lay(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.under = l
}

// windowOp is a binding or an invalidation under way.
type windowOp struct {
	w        *Window
	promise  futures.Promise[Result]
	then, no windowState // after success, after failure
}

// post submits s; key is the window's from now on.
func (w *Window) post(ctx context.Context, then, no windowState, s *reactor.Send, key uint32) (f Future, err error) {
	op := &windowOp{w: w, then: then, no: no}
	op.promise, f = w.c.sh.r.Futures().New(w.c.sh.r.Driver())
	s.Sink = op
	w.mu.Lock()
	old := w.key
	w.key = key
	w.mu.Unlock()
	if _, err = w.c.q.Post(ctx, s, reactor.Payload{}); err == nil {
		return f, nil
	}
	w.mu.Lock()
	w.key = old
	w.mu.Unlock()
	w.undo(no)
	op.promise.Settle(Result{}, err)
	f.Discard()
	return Future{}, err
}

// Complete implements reactor.Sink.
func (op *windowOp) Complete(r Result, err error) {
	to := op.then
	op.w.mu.Lock()
	if err != nil {
		to = op.no
	} else if op.w.gone {
		to = windowFree
	}
	op.w.enter(to)
	op.w.mu.Unlock()
	op.promise.Settle(r, err)
}

// invalidated is the window whose key the peer has just taken away; nil when
// none is known by it. Holder only.
func (c *Conn) invalidated(key uint32) *Window {
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	for w := range c.windows {
		if w.lose(key) {
			return w
		}
	}
	return nil
}

// lose notes that the peer has invalidated key, and tells whether it is this
// window's.
func (w *Window) lose(key uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.key != key || w.state == windowClosed {
		return false
	}
	if w.gone = true; w.state == windowBound {
		w.enter(windowFree)
	}
	return true
}

// Close gives the window up; the peer's access ends. It is idempotent.
// ErrWindowState, and nothing is changed, while a binding or an invalidation is
// under way.
//
// Implements: ibv_dealloc_mw.
func (w *Window) Close() error {
	w.c.windowMu.Lock()
	defer w.c.windowMu.Unlock()
	return w.close(false)
}

// close closes, even in the midst of a change if the queue pair is at its end.
// Under c.windowMu.
func (w *Window) close(end bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state == windowClosed:
		return nil
	case !end && (w.state == windowBinding || w.state == windowUnbinding):
		return fmt.Errorf("%w: it is %s", ErrWindowState, windowStates[w.state])
	}
	if err := w.mw.Close(); err != nil {
		return err
	}
	w.enter(windowClosed)
	delete(w.c.windows, w)
	return nil
}

// closeWindows ends all windows before the queue pair that they are bound
// through: a device may wait for them. Holder only; no new one comes, because
// the cause is set.
func (c *Conn) closeWindows() error {
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	var errs []error
	for w := range c.windows {
		errs = append(errs, w.close(true))
	}
	return errors.Join(errs...)
}

// SendInvalidate is Send that also takes remote, a window that the peer has
// opened, away at the peer: it is shut when the message arrives, and the message
// says so.
//
// Implements: ibv_post_send, SEND_WITH_INV.
func (c *Conn) SendInvalidate(ctx context.Context, local Slice, remote Remote) (Future, error) {
	return c.send(ctx, []Slice{local}, reactor.Send{Opcode: verbs.WRSendWithInv, Invalidate: remote.RKey}, way{})
}
