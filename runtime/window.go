package runtime

import (
	"errors"
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
)

// windowState is the state of a window. Guarded by Window.mu.
//
//	           Bind             completed              Invalidate
//	(new) free ──────> binding ───────────> bound ──────────────────> unbinding ──┐
//	        ^             │ failed, or the    │ the peer                completed │
//	        │             │ peer invalidates  │ invalidates                       │
//	        └─────────────┴───────────────────┴───────────────────────────────────┘
//
// If an invalidation fails, unbinding becomes bound again. Close leads from free and bound to
// closed. The end of the connection leads from every state to closed.
type windowState uint8

const (
	windowFree windowState = iota
	windowBinding
	windowBound
	windowUnbinding
	windowClosed
)

var windowStates = [...]string{"free", "being bound", "bound", "being invalidated", "closed"}

// Window gives the peer of one connection access to part of a region, as long as the window is
// bound. Other peers get no access. Each binding gets a new key. The key becomes invalid when this
// end or the peer invalidates the window. Binding and invalidating cost a work request each, but no
// registration.
//
// Methods may be called from any goroutine. The caller closes the window. The end of the connection
// closes it too.
//
// Implements: struct ibv_mw, type 2.
type Window struct {
	c  *Conn
	mw verbs.MW

	mu    sync.Mutex // guards the fields below; held for a few instructions
	state windowState
	at    Remote // range and key of the binding; while free, of the last binding
	gone  bool   // the peer invalidated the window before the binding's result was delivered
	// under is the lease of the region to which the window is, or may be, bound. It keeps the
	// region open.
	under *lease
	// Revoke sets ending: from then on bindings and invalidations are refused. Revoke waits on
	// changed. The next change of state closes changed and sets it to nil.
	ending  bool
	changed chan struct{}
}

// NewWindow allocates a window of this connection. It enters the kernel on a real device. Errors:
// the connection's cause; ErrNotSupported.
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
	w := &Window{c: c, mw: mw, at: Remote{RKey: mw.RKey()}}
	if c.windows == nil {
		c.windows = map[*Window]struct{}{}
	}
	c.windows[w] = struct{}{}
	return w, nil
}

// Remote returns the descriptor of the window's memory, as Bind returned it. The error is
// ErrWindowState if the window is not bound, or ErrWindowClosed.
func (w *Window) Remote() (Remote, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != windowBound {
		return Remote{}, w.stateError(windowBound)
	}
	return w.at, nil
}

// The method of returns an error if the window is nil or belongs to another connection than c.
func (w *Window) of(c *Conn) error {
	if w == nil || w.c != c {
		return fmt.Errorf("%w: a window of another connection", ErrInvalid)
	}
	return nil
}

// The method move changes the state from one value to another, and returns the window's range and
// key. It fails if the window has another state or was revoked. If the argument lease is not nil,
// the window takes over this lease of the region. The window ends the lease later, even if the
// connection ends before the binding is posted.
func (w *Window) move(from, to windowState, lease *lease) (at Remote, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state != from:
		return at, w.stateError(from)
	case w.ending:
		return at, ErrWindowClosed
	}
	if w.state, w.gone = to, false; lease != nil {
		w.under = lease
	}
	return w.at, nil
}

// stateError returns the error of a window that is not in the state wanted. The caller holds w.mu.
func (w *Window) stateError(wanted windowState) error {
	if w.state == windowClosed {
		return ErrWindowClosed
	}
	return fmt.Errorf("%w: it is %s, not %s", ErrWindowState, windowStates[w.state], windowStates[wanted])
}

// The method enter sets the state and closes changed. If the new state is free or closed, it ends
// the lease of the region. If the window is closed, it does nothing. The caller holds w.mu.
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

// The method invalidated handles the peer's invalidation of a key. It returns the window with that
// key, or nil if there is none. Only the holder of the turn (the goroutine that runs the reactor)
// calls it.
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

// keyInvalidated reports whether the window has this key. If so, it records that the peer has
// invalidated the key.
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

// Close deallocates the window, which ends the peer's access. While a binding or an invalidation is
// in progress, it returns ErrWindowState and changes nothing. Close is idempotent.
//
// Implements: ibv_dealloc_mw.
func (w *Window) Close() error {
	w.c.windowMu.Lock()
	defer w.c.windowMu.Unlock()
	return w.close(false)
}

// The method close closes the window. If end is true, the queue pair is ending; then a binding or
// an invalidation in progress is no obstacle. The caller holds w.c.windowMu.
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

// closeWindows closes all windows of the connection. It runs before the queue pair is destroyed,
// because a device may require this order. First it seals the queue, so that no unposted binding is
// posted with a window that is gone. Then it moves the queue pair to ERR, where the queue pair
// answers nothing. So a peer that writes through a window sees a lost connection, not an access
// error. No new window can appear, because the connection's cause is set. Holder only.
func (c *Conn) closeWindows() error {
	c.q.Seal()
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	if qp := c.q.QP(); qp != nil && len(c.windows) > 0 {
		// If Modify fails, the queue pair is already in ERR or destroyed, or its device is gone. In
		// all three cases it answers nothing.
		_ = qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
	}
	var errs []error
	for w := range c.windows {
		errs = append(errs, w.close(true))
	}
	return errors.Join(errs...)
}
