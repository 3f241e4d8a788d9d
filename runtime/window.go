package runtime

import (
	"errors"
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
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
	at    Remote // what it opens, with its key: the last, while it is free
	gone  bool   // the peer invalidated it before its binding was known to be done
	// under is the region's lease while the window is, or may be, bound there: the
	// region cannot be closed under it.
	under *lease
	// ending is set by Revoke: nothing is bound any more. changed is what it waits on;
	// closed by the next change of state.
	ending  bool
	changed chan struct{}
}

// NewWindow makes a window of this connection. It enters the kernel on a real
// device. Errors: the connection's cause; ErrNotSupported.
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

// Remote is the descriptor of what the window opens, as Bind returned it.
// ErrWindowState unless it is bound.
func (w *Window) Remote() (Remote, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != windowBound {
		return Remote{}, w.not(windowBound)
	}
	return w.at, nil
}

// of tells whether the window is one of c's.
func (w *Window) of(c *Conn) error {
	if w == nil || w.c != c {
		return fmt.Errorf("%w: a window of another connection", ErrInvalid)
	}
	return nil
}

// move takes the window from one state to the next and tells what it opens, or
// opened. With lease it is about to lie on a region: it ends the lease from now on,
// also when the connection ends before anything is posted.
func (w *Window) move(from, to windowState, lease *lease) (at Remote, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state != from:
		return at, w.not(from)
	case w.ending:
		return at, ErrWindowClosed
	}
	if w.state, w.gone = to, false; lease != nil {
		w.under = lease
	}
	return w.at, nil
}

// not is the error of a window that is not in the state wanted. Under mu.
func (w *Window) not(wanted windowState) error {
	if w.state == windowClosed {
		return ErrWindowClosed
	}
	return fmt.Errorf("%w: it is %s, not %s", ErrWindowState, windowStates[w.state], windowStates[wanted])
}

// enter makes to the state, unless the window is closed; a free one lies on no
// region. Under mu.
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
	if w.at.RKey != key || w.state == windowClosed {
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
// through: a device may wait for them. Bindings that wait to be posted name them, so
// nothing is posted any more; and the queue pair answers nothing any more, so that
// the peer, who is writing through one, learns that we are gone, and not that he had
// no right to. Holder only; no new window comes, because the cause is set.
func (c *Conn) closeWindows() error {
	c.q.Seal()
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	if qp := c.q.QP(); qp != nil && len(c.windows) > 0 {
		// It is in ERR already, destroyed, or its device is gone: all that is as good.
		_ = qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
	}
	var errs []error
	for w := range c.windows {
		errs = append(errs, w.close(true))
	}
	return errors.Join(errs...)
}
