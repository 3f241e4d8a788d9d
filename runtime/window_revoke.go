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
// can delay it. Revoke does not wait for earlier requests. But if a binding or an invalidation of
// the window is in progress, Revoke waits for its end, until ctx ends. (Conn.Cancel ends this
// wait.) If ctx ends first, Revoke returns the context's error and may be called again.
//
// Revoke is idempotent. Any goroutine may call it except one that holds the turn (for example in a
// Sink).
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
		w.c.sh.r.Wake() // an operation that was started in a Batch may be unposted while the loop sleeps
		select {
		case <-changed:
		case <-asked:
			return fmt.Errorf("revoking a window: %w: %w", err, asked.Cause(ctx, asked.Err()))
		}
	}
}

// The method revoked makes Bind and Invalidate fail from now on. It returns a channel that is
// closed at the next change of the window's state. If an operation is in progress, its completion
// changes the state.
func (w *Window) revoked() (changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}
