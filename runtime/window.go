package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
)

// windowState is the state of a window. Window.mu guards the state.
//
//	           Bind             completed              Invalidate
//	(new) free ──────> binding ───────────> bound ──────────────────> unbinding ──┐
//	        ^             │ failed, or the    │ the peer                completed │
//	        │             │ peer invalidates  │ invalidates                       │
//	        └─────────────┴───────────────────┴───────────────────────────────────┘
//
// If an invalidation fails, the state changes from unbinding to bound, unless the peer has invalidated the
// key meanwhile. Close changes the states
// free and bound to closed. The end of the connection changes every state to closed.
type windowState uint8

const (
	windowFree windowState = iota
	windowBinding
	windowBound
	windowUnbinding
	windowClosed
)

var windowStates = [...]string{"free", "being bound", "bound", "being invalidated", "closed"}

// Window gives the peer of one connection access to a part of a region, while the window is bound.
// Other peers get no access. Each binding has a new key. A binding and an invalidation cost one work
// request each, but no registration of memory.
//
// Either end may end a binding: this end by Invalidate, Revoke or Close, and the peer by a message
// (SendInvalidateOp). If an access of the peer arrives later, the device refuses it, and the connection ends.
//
// If both ends end one binding, the result depends on this end's device:
//
//   - The software RNIC (package verbs/soft) accepts both, in either order, and delivers the message. It
//     remembers the last 1,024 keys that this end has ended on a connection. So this end can take a window
//     back at any time, for example after a time limit.
//   - On other devices the second of the two is an error that ends the connection: the InfiniBand
//     specification demands it. The sender's future may be settled without an error although its message
//     was lost. Rdma_rxe (Soft-RoCE) may even stop the kernel. So with such a device the two ends must agree
//     that only one of them ends a binding. If this end does, the peer reports by an ordinary message that
//     it needs the window no longer. If the peer does, and this end wants the window back first, Revoke
//     ends the access in any case, and an honest peer that gives the window back at that moment loses the
//     connection.
//
// Methods may be called from any goroutine. The caller closes the window. The end of the connection
// also closes the window.
//
// Implements: struct ibv_mw, type 2.
type Window struct {
	c  *Conn
	mw verbs.MW

	// life is held while the device deallocates mw, and locked before mu. The holder of the turn locks it only at the
	// end of a connection, whose queue pair must outlive mw.
	life sync.Mutex

	mu    sync.Mutex // guards the fields below; held for a few instructions
	state windowState
	at    Remote // range and key of the binding; in state free, range and key of the last binding
	// gone means that the peer has invalidated the key of at, perhaps before the result of the binding was
	// delivered, or while an invalidation is in progress. It never holds in state bound. It is cleared with
	// each new key, and not before: a message that invalidates the key before may arrive until then.
	gone bool
	// under is the lease of the region to which the window is being bound or is bound. The lease
	// keeps the region open.
	under *lease
	// ending means that bindings and invalidations are refused. Only Revoke sets it.
	ending bool
	// leaving means the same, while the device deallocates mw.
	leaving bool
	// changed is the channel on which Revoke waits, or nil. The next change of state closes the
	// channel, and sets the field to nil.
	changed chan struct{}
}

// windows reports whether the queue pair of a connection with the options o can bind windows.
func (rt *Runtime) windows(o Options) bool { return o.Windows || rt.carriesLarge(o) }

// NewWindow allocates a window of this connection. On a real device it makes a system call. Errors:
// ErrConfig if Options.Windows is not set and the connection carries no large messages (Options.MaxMessage);
// the connection's cause; ErrNotSupported; errors of the device.
//
// Implements: ibv_alloc_mw.
func (c *Conn) NewWindow() (*Window, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if !c.rt.windows(c.opts) {
		return nil, fmt.Errorf("%w: a window of a connection without Options.Windows", ErrConfig)
	}
	if err := c.rt.enter(); err != nil { // the protection domain lives until leave
		return nil, err
	}
	defer c.rt.leave()
	mw, err := c.rt.pd.AllocMW(verbs.MWType2) // without windowMu, for which the holder of the turn may wait
	if err != nil {
		return nil, err
	}
	w := &Window{c: c, mw: mw, at: Remote{RKey: mw.RKey()}}
	if err := c.addWindow(w); err != nil {
		return nil, errors.Join(err, mw.Close())
	}
	return w, nil
}

// addWindow adds w to the connection's windows, unless the connection has ended.
func (c *Conn) addWindow(w *Window) error {
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	if err := c.Err(); err != nil {
		return err
	}
	if c.windows == nil {
		c.windows = map[*Window]struct{}{}
	}
	c.windows[w] = struct{}{}
	return nil
}

// Remote returns the descriptor of the window's memory, as Bind returned it. Errors: ErrWindowState
// if the window is not bound; ErrWindowClosed.
func (w *Window) Remote() (Remote, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != windowBound {
		return Remote{}, w.stateError(windowBound)
	}
	return w.at, nil
}

// Window.of returns an error if the window is nil or belongs to a connection other than c.
func (w *Window) of(c *Conn) error {
	if w == nil || w.c != c {
		return fmt.Errorf("%w: a window of another connection", ErrInvalid)
	}
	return nil
}

// Window.move changes the window's state from the first given state to the second, and returns the
// window's range and key. If the window is not in the first state, or was revoked, it returns an
// error.
//
// If the argument lease is not nil, move stores this lease of the region in w.under. The window is then
// responsible for its end (Window.enter), even if the connection ends before the binding is posted.
func (w *Window) move(from, to windowState, lease *lease) (at Remote, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state != from:
		return at, w.stateError(from)
	case w.ending, w.leaving:
		return at, ErrWindowClosed
	}
	if w.state = to; lease != nil {
		w.under = lease
	}
	return w.at, nil
}

// stateError returns the error of a call that wants the window in another state than it is in:
// ErrWindowClosed if the window is closed, and otherwise ErrWindowState. The caller holds w.mu.
func (w *Window) stateError(wanted windowState) error {
	if w.state == windowClosed {
		return ErrWindowClosed
	}
	return fmt.Errorf("%w: it is %s, not %s", ErrWindowState, windowStates[w.state], windowStates[wanted])
}

// Window.enter changes the state of the window, and closes the channel w.changed. If the new state
// is free or closed, it also ends the lease of the region. If the window is closed already,
// Window.enter does nothing. The caller holds w.mu.
func (w *Window) enter(to windowState) {
	if w.state == windowClosed {
		return
	}
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
	if w.state = to; to == windowFree || to == windowClosed {
		w.under.End()
		w.under = nil
	}
}

// Window.leave is Window.enter at the end of a binding or an invalidation. If the peer has invalidated the
// key, the new state is free. The caller holds w.mu.
func (w *Window) leave(to windowState) {
	if w.gone {
		to = windowFree
	}
	w.enter(to)
}

// Conn.invalidated handles the peer's invalidation of a key. It returns the window with this key, or
// nil if no window has this key. Only the holder of the turn (the goroutine that runs the reactor)
// calls invalidated.
func (c *Conn) invalidated(key uint32) *Window {
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	for w := range c.windows {
		if w.keyInvalidated(key) {
			return w
		}
	}
	return nil
}

// keyInvalidated records that the peer has invalidated the key, and returns true. If the window has
// another key or is closed, keyInvalidated returns false.
func (w *Window) keyInvalidated(key uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at.RKey != key || w.state == windowClosed {
		return false
	}
	if w.gone = true; w.state == windowBound {
		w.enter(windowFree)
	}
	return true
}

// Close deallocates the window, which ends the peer's access. It needs no request, so it succeeds whether or
// not the peer has ended the binding. While a binding or an invalidation is
// in progress, Close returns ErrWindowState and changes nothing. Close is idempotent.
//
// Implements: ibv_dealloc_mw.
func (w *Window) Close() error { return w.close(false) }

// Window.close implements Close. The argument reports whether the
// connection is ending. In that case Window.close also closes a window with a binding or an
// invalidation in progress.
func (w *Window) close(end bool) error {
	w.life.Lock()
	defer w.life.Unlock()
	if may, err := w.leaves(end); !may {
		return err
	}
	err := w.mw.Close() // may enter the kernel: the holder of the turn must not wait for it
	w.mu.Lock()
	if w.leaving = false; err == nil {
		w.enter(windowClosed)
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	w.c.windowMu.Lock()
	defer w.c.windowMu.Unlock()
	delete(w.c.windows, w)
	return nil
}

// Window.leaves refuses bindings and invalidations from now on, and reports whether the window can be closed now. If
// not, it is closed, or err is the reason.
func (w *Window) leaves(end bool) (may bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state == windowClosed:
		return false, nil
	case !end && (w.state == windowBinding || w.state == windowUnbinding):
		return false, fmt.Errorf("%w: it is %s", ErrWindowState, windowStates[w.state])
	}
	w.leaving = true
	return true, nil
}

// closeWindows closes all windows of the connection. It is called before the queue pair is destroyed,
// because a device may require this order. First closeWindows seals the queue: an unposted binding
// must not be posted when its window is gone. Then closeWindows moves the queue pair to ERR. A queue
// pair in ERR does not answer, so a peer that writes through a window sees a lost connection, and not
// an access error. No new window can appear, because the connection's cause is set. Holder only.
func (c *Conn) closeWindows() error {
	c.q.Seal()
	c.windowMu.Lock()
	all := slices.Collect(maps.Keys(c.windows))
	c.windowMu.Unlock()
	if qp := c.q.QP(); qp != nil && len(all) > 0 {
		// If Modify fails, the queue pair is already in ERR, or is destroyed, or its device is
		// gone. In all three cases the queue pair does not answer.
		_ = qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
	}
	var errs []error
	for _, w := range all {
		errs = append(errs, w.close(true))
	}
	return errors.Join(errs...)
}
