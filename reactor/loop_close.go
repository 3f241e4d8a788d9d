package reactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Close ends the reactor: its queues must have been released. It waits until every
// goroutine has left the calls in which it found a queue released, and for the loop and the
// running callback to return. When ctx ends first it returns an error and skips the
// remaining steps; a later Close takes them. With a context that has ended it begins, and
// waits for nothing. It is idempotent, several
// goroutines may call it, and it leaves no goroutine, descriptor or mapping behind. Not
// from the turn or a callback.
//
// Errors: verbs.ErrBusy while a queue is alive, while the device refuses to give back what
// a released one had, and, with the context's, if goroutines had not left when ctx ended;
// the context's, ErrNilContext; the device's.
func (r *Reactor) Close(ctx context.Context) error {
	w, err := Ask(ctx)
	if err != nil {
		return err
	}
	return w.Why(ctx, r.close(w))
}

func (r *Reactor) close(ctx Asked) error {
	select {
	case r.closing <- struct{}{}: // also when ctx has ended: what is begun goes on
	default:
		select {
		case r.closing <- struct{}{}:
		case <-ctx:
			return errGivenUp
		}
	}
	defer func() { <-r.closing }()
	if r.destroyed {
		return nil
	}
	if err := r.shut(ctx); err != nil {
		return err
	}
	if r.sleep != nil {
		if err := r.end(ctx); err != nil {
			return err
		}
	}
	var err error
	// Holding the turn: whoever defers something now makes a goroutine that turns
	// once more, see afterClose.
	r.withTurn(func() {
		err = r.destroy()
		r.destroyed = err == nil
	})
	r.timers.stop() // again: who gives the turn up looks at what is due, and may wind the alarm
	return err
}

// shut closes the reactor to others, as soon as no queue is left of it.
func (r *Reactor) shut(ctx Asked) error {
	for {
		var left error
		var reclaimed <-chan struct{}
		err := r.Do(ctx, func() { reclaimed, left = r.tryShut() })
		switch {
		case errors.Is(err, ErrClosed): // by an earlier call that did not get to the end
			return nil
		case err != nil:
			return err
		case reclaimed == nil:
			return left
		}
		select {
		case <-reclaimed:
		case <-ctx:
			return fmt.Errorf("%w: %w", left, errGivenUp)
		}
	}
}

// tryShut closes the reactor to others, or returns what keeps it: with reclaimed, which a
// later turn closes, only released queues that goroutines have not left. Holder only.
func (r *Reactor) tryShut() (reclaimed <-chan struct{}, left error) {
	r.Drain() // what released queues left in the completion queues goes, and then their memory
	if r.live+len(r.quarantined) == 0 {
		r.closed.Store(true)
		return nil, nil
	}
	left = errors.Join(fmt.Errorf("%w: reactor with %d queues, and %d released whose users are not all back", verbs.ErrBusy, r.live, len(r.quarantined)), r.reclaimErr)
	if r.live > 0 || r.reclaimErr != nil || r.cfg.Stepped { // stepped: only the caller makes turns
		return nil, left
	}
	if r.reclaimed == nil {
		r.reclaimed = make(chan struct{})
	}
	return r.reclaimed, left
}

// end ends the reactor's goroutines.
func (r *Reactor) end(ctx Asked) error {
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
			return errGivenUp
		}
	}
	onOwnGoroutine(r.runCallbacks) // pushed while they ended
	r.runLeft()
	return nil
}

// destroy closes what New made, children first. Holder only, or of a reactor that New
// could not make.
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
