package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Revoke ends the peer's access at once and permanently. When Revoke returns nil, the window is
// closed, and no access through the window is in progress or can begin. From the first call of
// Revoke on, Bind and Invalidate fail, even if Revoke returns an error.
//
// An invalidation waits behind earlier requests in the send queue, so a peer that does not answer
// can delay the invalidation. Revoke does not wait for earlier requests. But if a binding or an
// invalidation of the window is in progress, Revoke waits until it has ended. (Conn.Cancel ends all
// operations, and so ends this wait.) If ctx ends during the wait, Revoke returns the context's error
// and may be called again.
//
// The peer may have ended the binding already, or may be ending it at this moment: Revoke succeeds on every
// device. What becomes of the peer's message depends on the device; see Window.
//
// Revoke is idempotent. Any goroutine may call Revoke, except the holder of the reactor's turn (for
// example in a Sink).
//
// Implements: ibv_dealloc_mw.
func (w *Window) Revoke(ctx context.Context) error {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return err
	}
	for {
		changed := w.revoked()
		err := w.Close()
		if !errors.Is(err, ErrWindowState) {
			return err
		}
		w.c.sh.r.Wake() // if a Batch has started the operation, it may still be unposted, and the loop may sleep
		select {
		case <-changed:
		case <-asked:
			return fmt.Errorf("revoking a window: %w: %w", err, asked.Cause(ctx, asked.Err()))
		}
	}
}

// Window.revoked makes Bind and Invalidate fail from now on. It returns a channel that is closed at
// the next change of the window's state. If a binding or an invalidation is in progress, its
// completion changes the state.
func (w *Window) revoked() (changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}
