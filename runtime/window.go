package runtime

import (
	"errors"
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
)

// windowState is the state of a window. Guarded by Window.mu.
//
//	           Bind             completed                Invalidate
//	(new) free ──────> binding ───────────> bound ───────────────────> unbinding ──┐
//	        ^             │ the peer invalidates │                       completed  │
//	        └─────────────┴──────────────────────┴─────────────────────────────────┘
//	any, on Close or the end of the connection: closed
type windowState uint8

const (
	windowFree windowState = iota
	windowBinding
	windowBound
	windowUnbinding
	windowClosed
)

var windowStates = [...]string{"free", "being bound", "bound", "being invalidated", "closed"}

// Window opens part of a region to the peer of one connection, and to no other peer, while it is
// bound. Its key differs with each binding and becomes invalid when the window is invalidated,
// here or by the peer. Binding and invalidating cost a work request each, not a registration.
//
// Methods may be called from any goroutine. The caller closes it; the
// end of the connection closes it too.
//
// Implements: struct ibv_mw, type 2.
type Window struct {
	c  *Conn
	mw verbs.MW

	mu    sync.Mutex // guards the fields below; held for a few instructions
	state windowState
	at    Remote // the bound range and its key; while free, the last ones
	gone  bool   // the peer invalidated it before its binding was known to be completed
	// under is the lease of the region to which the window is, or may be, bound.
	// It keeps the region from being closed.
	under *lease
	// ending is set by Revoke: further bindings and invalidations are refused.
	// Revoke waits on changed, which the next change of state closes.
	ending  bool
	changed chan struct{}
}

// NewWindow allocates a window of this connection. It enters the kernel
// on a real device. Errors: the connection's cause; ErrNotSupported.
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

// Remote returns the descriptor of the window's memory, as Bind returned
// it. ErrWindowState unless it is bound.
func (w *Window) Remote() (Remote, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != windowBound {
		return Remote{}, w.stateError(windowBound)
	}
	return w.at, nil
}

// of returns an error unless the window belongs to c.
func (w *Window) of(c *Conn) error {
	if w == nil || w.c != c {
		return fmt.Errorf("%w: a window of another connection", ErrInvalid)
	}
	return nil
}

// move changes the state, and returns the window's range and key. If lease is
// not nil, the window takes the lease over for a binding and ends it later,
// even if the connection ends before the binding is posted.
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

// stateError returns the error of a window that is not in the wanted state. Under mu.
func (w *Window) stateError(wanted windowState) error {
	if w.state == windowClosed {
		return ErrWindowClosed
	}
	return fmt.Errorf("%w: it is %s, not %s", ErrWindowState, windowStates[w.state], windowStates[wanted])
}

// enter sets the state, unless the window is closed. If the new state is free
// or closed, it ends the region's lease. Under mu.
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

// invalidated returns the window whose key the peer has just
// invalidated; nil if none has that key. Holder only.
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

// keyInvalidated records that the peer has invalidated key, and reports whether it is this window's.
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

// Close deallocates the window; the peer's access ends. It is idempotent. It returns
// ErrWindowState, and changes nothing, while a binding or an invalidation is in progress.
//
// Implements: ibv_dealloc_mw.
func (w *Window) Close() error {
	w.c.windowMu.Lock()
	defer w.c.windowMu.Unlock()
	return w.close(false)
}

// close closes the window. If end is set, the queue pair is ending, and close
// succeeds also during a binding or an invalidation. Under c.windowMu.
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

// closeWindows closes all windows before their queue pair: a device may require that. Unposted
// bindings refer to windows, so closeWindows seals the queue. It moves the queue pair to ERR, where
// it answers nothing: a peer that writes through a window then sees a lost connection, not an
// access error. Holder only; no new window appears, because the cause is set.
func (c *Conn) closeWindows() error {
	c.q.Seal()
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	if qp := c.q.QP(); qp != nil && len(c.windows) > 0 {
		// If this fails, the queue pair is already in ERR or destroyed, or its
		// device is gone, which is as good.
		_ = qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
	}
	var errs []error
	for w := range c.windows {
		errs = append(errs, w.close(true))
	}
	return errors.Join(errs...)
}
