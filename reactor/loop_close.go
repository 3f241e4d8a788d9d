package reactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Close ends the reactor, whose queues must have been released. It waits until every goroutine has
// left its calls on released queues, and until the loop and the running callback have returned. If
// ctx ends first, Close returns an error, and a later Close takes the remaining steps. If ctx has
// ended before the call, Close takes the steps up to the first that must wait. Close is idempotent,
// several goroutines may call it, and it leaves no goroutine, descriptor or mapping behind. Neither
// the holder of the turn nor a callback may call it.
//
// Errors: verbs.ErrBusy while a queue is not released or the device refuses to give back the memory
// of a released queue; verbs.ErrBusy with the context's error if ctx ended while goroutines were
// still in calls on released queues; the context's error, ErrNilContext; the device's errors.
func (r *Reactor) Close(ctx context.Context) error {
	w, err := DoneOf(ctx)
	if err != nil {
		return err
	}
	return w.Cause(ctx, r.close(w))
}

func (r *Reactor) close(ctx DoneContext) error {
	select {
	case r.closing <- struct{}{}: // tried even if ctx has ended: steps that need not wait are still taken
	default:
		select {
		case r.closing <- struct{}{}:
		case <-ctx:
			return errContextDone
		}
	}
	defer func() { <-r.closing }()
	if r.destroyed {
		return nil
	}
	if err := r.stopAccepting(ctx); err != nil {
		return err
	}
	if r.sleep != nil {
		if err := r.end(ctx); err != nil {
			return err
		}
	}
	var err error
	// Hold the turn, because a concurrent Defer or Schedule starts a goroutine that takes the turn,
	// see afterClose.
	r.withTurn(func() {
		err = r.destroy()
		r.destroyed = err == nil
	})
	r.timers.stop() // again, because withTurn checks the timers at its end and may have set the alarm
	return err
}

// stopAccepting sets r.closed, after it has waited until all released queues are reclaimed. It
// returns an error at once if a queue is not released.
func (r *Reactor) stopAccepting(ctx DoneContext) error {
	for {
		var left error
		var reclaimed <-chan struct{}
		err := r.Do(ctx, func() { reclaimed, left = r.tryStopAccepting() })
		switch {
		case errors.Is(err, ErrClosed): // an earlier Close has set r.closed and did not finish
			return nil
		case err != nil:
			return err
		case reclaimed == nil:
			return left
		}
		select {
		case <-reclaimed:
		case <-ctx:
			return fmt.Errorf("%w: %w", left, errContextDone)
		}
	}
}

// tryStopAccepting sets r.closed, or returns in left the reason why it cannot. If the only reason
// is that goroutines have not left released queues, it also returns a channel. A later pass closes
// the channel when they have left.
func (r *Reactor) tryStopAccepting() (reclaimed <-chan struct{}, left error) {
	r.Drain() // a released queue is reclaimed only after the completion queues were polled empty
	if r.live+len(r.quarantined) == 0 {
		r.closed.Store(true)
		return nil, nil
	}
	left = errors.Join(fmt.Errorf("%w: reactor with %d queues, and %d released whose users are not all back", verbs.ErrBusy, r.live, len(r.quarantined)), r.reclaimErr)
	if r.live > 0 || r.reclaimErr != nil || r.cfg.Stepped { // stepped: only the caller runs passes
		return nil, left
	}
	if r.reclaimed == nil {
		r.reclaimed = make(chan struct{})
	}
	return r.reclaimed, left
}

// end ends the loop and the callback goroutine, and runs the functions still queued for them.
func (r *Reactor) end(ctx DoneContext) error {
	if err := r.sleep.Close(); err != nil {
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
		case <-ctx:
			return errContextDone
		}
	}
	onOwnGoroutine(r.runCallbacks) // callbacks queued while the goroutines ended
	r.runLeft()
	return nil
}

// destroy closes the objects that New made, children first. Only the holder of the turn and a New
// that failed call it.
func (r *Reactor) destroy() error {
	r.timers.stop()
	r.releaseProcessor()
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
	if r.sleep != nil {
		errs = append(errs, r.sleep.Close())
	}
	if r.channel != nil {
		errs = append(errs, r.channel.Close())
	}
	if r.wcArena != nil {
		errs = append(errs, r.wcArena.Unmap())
	}
	return errors.Join(errs...)
}
