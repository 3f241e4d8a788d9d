package reactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Close ends the reactor: its queues must have been released. It waits for the
// loop to return, at most until ctx ends. It is idempotent and leaves no
// goroutine, descriptor or mapping behind.
//
// Errors: verbs.ErrBusy while a queue is alive; the device's.
func (r *Reactor) Close(ctx context.Context) error {
	var err error
	first := false
	if derr := r.Do(ctx, func() {
		if r.closed.Load() {
			return
		}
		r.sweep()
		if r.live > 0 || len(r.graves) > 0 {
			err = fmt.Errorf("%w: reactor with %d queues", verbs.ErrBusy, r.live+len(r.graves))
			return
		}
		first = true
		r.closed.Store(true)
	}); derr != nil && !errors.Is(derr, ErrClosed) {
		return derr
	}
	if err != nil || !first {
		return err
	}
	if r.poller != nil {
		err = r.poller.Close()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return errors.Join(err, r.destroy())
}

// destroy closes what New made, children first. Nobody else is there any more.
func (r *Reactor) destroy() error {
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
