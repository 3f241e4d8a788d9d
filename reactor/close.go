package reactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Close ends the reactor: its queues must have been released. It waits for the
// loop and the running callback to return, at most until ctx ends; a later Close
// goes on from there. It is idempotent and leaves no goroutine, descriptor or
// mapping behind. Not from the turn or a callback.
//
// Errors: verbs.ErrBusy while a queue is alive; the context's; the device's.
func (r *Reactor) Close(ctx context.Context) error {
	r.closing.Lock()
	defer r.closing.Unlock()
	if r.destroyed {
		return nil
	}
	var busy error
	if err := r.Do(ctx, func() {
		r.Drain() // what released queues left in the completion queues goes, and then their memory
		if r.live > 0 || len(r.graves) > 0 {
			busy = errors.Join(fmt.Errorf("%w: reactor with %d queues, and %d released whose users are not all back", verbs.ErrBusy, r.live, len(r.graves)), r.unburied)
			return
		}
		r.closed.Store(true)
	}); err != nil && !errors.Is(err, ErrClosed) { // closed: by an earlier call that did not get to the end
		return err
	}
	if busy != nil {
		return busy
	}
	if r.poller != nil {
		if err := r.end(ctx); err != nil {
			return err
		}
	}
	var err error
	// Holding the turn: whoever defers something now makes a goroutine that turns
	// once more, see afterClose.
	r.tok.WithTurn(func() {
		err = r.destroy()
		r.destroyed = err == nil
	})
	r.timers.stop() // again: who gives the turn up looks at what is due, and may wind the alarm
	return err
}

// end ends the reactor's goroutines.
func (r *Reactor) end(ctx context.Context) error {
	if err := r.poller.Close(); err != nil {
		return err
	}
	select {
	case <-r.callbacks.stop:
	default:
		close(r.callbacks.stop)
	}
	for _, ch := range []chan struct{}{r.done, r.callbacks.ended} {
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.callbacks.run() // pushed while they ended
	r.leftovers()
	return nil
}

// destroy closes what New made, children first. Holder only, or of a reactor that New
// could not make.
func (r *Reactor) destroy() error {
	r.timers.stop()
	r.disown()
	var errs []error
	for _, s := range []*cqState{&r.sendCQ, &r.recvCQ} {
		if s.cq == nil {
			continue
		}
		if r.tok != nil {
			r.takeEvents()
		}
		s.cq.AckEvents(s.unacked)
		s.unacked = 0
	}
	for _, s := range []*cqState{&r.sendCQ, &r.recvCQ} {
		if s.cq != nil {
			errs = append(errs, s.cq.Close())
		}
	}
	if r.poller != nil {
		errs = append(errs, r.poller.Close())
	}
	if r.channel != nil {
		errs = append(errs, r.channel.Close())
	}
	if r.wcArena != nil {
		errs = append(errs, r.wcArena.Unmap())
	}
	return errors.Join(errs...)
}
