package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// Revoke takes the peer's access away at once and for good: when it returns nil no
// access through the window is under way, none will be, and the window is closed. It
// waits behind nothing that stands in the send queue, as Invalidate does, so a peer that
// does not answer cannot delay it. While a binding or an invalidation is under way it
// waits for that, on ctx; from the call on nothing is bound any more, also when ctx ends
// first: then its error is returned, and Revoke may be called again. (If that must not
// be: Conn.Cancel.) It is idempotent; any goroutine but the turn's.
//
// Implements: ibv_dealloc_mw.
func (w *Window) Revoke(ctx context.Context) error {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return err
	}
	for {
		changed := w.revoked()
		err := w.Close()
		if !errors.Is(err, ErrWindowState) {
			return err
		}
		w.c.sh.r.Wake() // it may have been started in a batch
		select {
		case <-changed:
		case <-asked:
			return fmt.Errorf("revoking a window: %w: %w", err, asked.Why(ctx, asked.Err()))
		}
	}
}

// revoked has nothing bound any more; changed is closed when what is under way now has
// completed.
func (w *Window) revoked() (changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}
