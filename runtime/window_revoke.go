package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Revoke ends the peer's access at once and permanently: when it returns nil no access
// through the window is in progress or will be, and the window is closed. Unlike Invalidate,
// Revoke does not wait behind requests in the send queue, so an unresponsive peer cannot delay
// it. But it waits, until ctx ends, for a binding or an invalidation in progress. (Conn.Cancel
// ends such a wait.) If ctx ends first, Revoke returns the context's error and may be called
// again. From its first call on further bindings are refused in any case. It is idempotent,
// and may be called from any goroutine that does not hold the turn.
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
		w.c.sh.r.Wake() // the operation may have been started in a batch
		select {
		case <-changed:
		case <-asked:
			return fmt.Errorf("revoking a window: %w: %w", err, asked.Cause(ctx, asked.Err()))
		}
	}
}

// revoked refuses further bindings; changed is closed when the operation in progress has completed.
func (w *Window) revoked() (changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}
