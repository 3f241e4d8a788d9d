package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Revoke ends the peer's access at once and permanently. When it returns nil, the window is closed,
// and no access through it is in progress or can begin. Invalidate waits behind earlier requests in
// the send queue, so a peer that does not answer can delay it. Revoke does not wait for these
// requests. But it waits for a binding or an invalidation in progress, until ctx ends. (Conn.Cancel
// ends this wait.) If ctx ends first, Revoke returns the context's error and may be called again.
// Further bindings and invalidations are refused from the first call of Revoke on, whatever it
// returns. Revoke is idempotent. Any goroutine may call it except one that holds the turn (for
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
		w.c.sh.r.Wake() // an operation that was started in a Batch may be unposted, and the loop asleep
		select {
		case <-changed:
		case <-asked:
			return fmt.Errorf("revoking a window: %w: %w", err, asked.Cause(ctx, asked.Err()))
		}
	}
}

// The method revoked makes the window refuse further bindings and invalidations. It returns a
// channel that is closed at the next change of state: when the operation in progress has completed.
func (w *Window) revoked() (changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}
