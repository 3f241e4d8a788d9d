package reactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Close ends the reactor. All queues must have been released before. Close waits until no
// goroutine is in a call on a released queue, and until the loop and the callback goroutine have
// ended. After a successful Close no goroutine, descriptor or mapping of the reactor is left.
//
// If ctx ends before a wait is over, Close returns an error; a later Close takes the remaining
// steps. If ctx has ended before the call, Close takes the steps up to the first that must wait.
// Close is idempotent, and several goroutines may call it. Neither the holder of the turn nor a
// callback may call it.
//
// Errors:
//   - verbs.ErrBusy: a queue is not released, or the device refuses to give back the memory of a
//     released queue, or the reactor is stepped and goroutines are in calls on released queues. (Close
//     of a stepped reactor does not wait for these goroutines.)
//   - verbs.ErrBusy with the context's error: ctx ended while goroutines were in calls on released
//     queues.
//   - The context's error, ErrNilContext, and the device's errors.
func (r *Reactor) Close(ctx context.Context) error {
	w, err := DoneOf(ctx)
	if err != nil {
		return err
	}
	return w.Cause(ctx, r.close(w))
}

func (r *Reactor) close(ctx DoneContext) error {
	select {
	case r.closing <- struct{}{}: // tried without ctx first: even if ctx has ended, Close takes the steps that need no wait
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
	// A concurrent Defer or Schedule may start a goroutine that uses the reactor (see afterClose).
	// That goroutine holds the turn, so destroy must hold the turn, too.
	r.withTurn(func() {
		err = r.destroy()
		r.destroyed = err == nil
	})
	r.timers.stop() // after withTurn, because withTurn may set the alarm again when it gives up the turn
	return err
}

// stopAccepting waits until all released queues are reclaimed, and then sets r.closed. If
// tryStopAccepting returns an error without a channel, stopAccepting returns that error at once.
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

// tryStopAccepting sets r.closed if all queues are reclaimed. Otherwise it returns an error. If
// waiting can help, tryStopAccepting also returns a channel, which a later pass closes when all
// released queues are reclaimed. Waiting cannot help in three cases: a queue is not released, the
// device has refused to give memory back, or the reactor is stepped.
func (r *Reactor) tryStopAccepting() (reclaimed <-chan struct{}, left error) {
	r.Drain() // a released queue is reclaimed only after the completion queues were polled empty
	if r.live+len(r.quarantined) == 0 {
		r.closed.Store(true)
		return nil, nil
	}
	left = errors.Join(fmt.Errorf("%w: the reactor has %d queues that are not released, and %d released queues that are still in use", verbs.ErrBusy, r.live, len(r.quarantined)), r.reclaimErr)
	if r.live > 0 || r.reclaimErr != nil || r.cfg.Stepped { // a stepped reactor runs no pass while its owner waits
		return nil, left
	}
	if r.reclaimed == nil {
		r.reclaimed = make(chan struct{})
	}
	return r.reclaimed, left
}

// end stops the loop and the callback goroutine, and waits until they have ended. Then
// it runs the functions that are still queued for them.
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

// destroy closes the objects that New made, children first. Close calls destroy with the turn held.
// New calls destroy if New fails.
func (r *Reactor) destroy() error {
	r.releaseProcessor()
	var errs []error
	if r.announces && r.channel != nil {
		r.channel.Notify(nil)
	}
	for _, s := range r.cqs {
		if r.tok != nil {
			r.takeEvents()
		}
		s.cq.AckEvents(s.unacked)
		s.unacked = 0
	}
	for _, s := range r.cqs {
		errs = append(errs, s.cq.Close())
	}
	if r.sleep != nil {
		errs = append(errs, r.sleep.Close())
	}
	if r.channel != nil {
		errs = append(errs, r.channel.Close())
	}
	for _, s := range r.cqs {
		errs = append(errs, s.wcArena.Unmap())
	}
	return errors.Join(errs...)
}
