package reactor

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// The keys of the poller's sources. Watch uses the keys from keyUser on.
const (
	keyCompletions uint32 = 0
	keyUser        uint32 = 1
	maxKeys               = 32
)

// noSleeper is the sleeper of a stepped reactor, which never sleeps.
type noSleeper struct{}

func (noSleeper) Wake()                          {}
func (noSleeper) Wait(time.Time) turn.WakeReason { return turn.WakeClosed }
func (noSleeper) Poll() turn.WakeReason          { return 0 }

func (r *Reactor) makeSleeper() (turn.Sleeper, error) {
	if r.cfg.Stepped {
		return noSleeper{}, nil
	}
	p, err := sys.NewPoller()
	if err != nil {
		return nil, err
	}
	r.sleep = turn.NewPollerSleeper(p)
	return waker{r.sleep, &r.timers}, p.Attach(r.channel, keyCompletions)
}

// waker is the sleeper of the loop. When the loop has slept until the first timer is due, waker
// sets timers.mayBeDue. The alarm sets it, too, but may fire later (see timers).
type waker struct {
	*turn.PollerSleeper
	timers *timers
}

// Wait implements [turn.Sleeper].
func (w waker) Wait(deadline time.Time) turn.WakeReason {
	wake := w.PollerSleeper.Wait(deadline)
	if wake&turn.WakeTimer != 0 {
		w.timers.mayBeDue.Store(true)
	}
	return wake
}

// Watch has fn called, while the turn is held, whenever the source s may have events, such as
// connection or asynchronous events. fn must take all events of s, now or later, because events
// that are there now are not reported again. A stepped reactor calls fn in every Step. Holder only.
func (r *Reactor) Watch(s verbs.Source, fn func()) error {
	for key := keyUser; key < maxKeys; key++ {
		if r.handlers[key] != nil {
			continue
		}
		r.handlers[key] = fn
		if !r.cfg.Stepped {
			if err := r.sleep.Attach(s, key); err != nil {
				delete(r.handlers, key)
				return err
			}
		}
		r.sources = append(r.sources, eventSource{s, key})
		return nil
	}
	return fmt.Errorf("%w: %d sources watched", ErrTooMany, maxKeys-1)
}

// Unwatch undoes Watch; the source may be closed afterwards. Holder only.
func (r *Reactor) Unwatch(s verbs.Source) error {
	for i, w := range r.sources {
		if w.s != s {
			continue
		}
		r.sources = append(r.sources[:i], r.sources[i+1:]...)
		delete(r.handlers, w.key)
		if r.cfg.Stepped {
			return nil
		}
		if _, ok := r.suspended[w.key]; ok {
			delete(r.suspended, w.key)
			return nil
		}
		return r.sleep.Detach(w.key)
	}
	return nil
}

type eventSource struct {
	s   verbs.Source
	key uint32
}

// takeChannelEvents handles a wake-up of the loop by the completion channel.
func (r *Reactor) takeChannelEvents() {
	r.stats.ChannelWakeups++
	r.takeEvents()
}

// takeEvents takes the events of the completion channel. It does not poll, because every pass
// polls. It records that the completion queue of each event is no longer armed, and acknowledges
// the events ackBatch at a time.
func (r *Reactor) takeEvents() {
	for {
		cq, ok, err := r.channel.GetEvent()
		if err != nil {
			// The event stays in the channel, and may belong to either completion queue. Both are
			// recorded as not armed, so that the next pass that arms makes the device raise another
			// event.
			r.sendCQ.disarm()
			r.recvCQ.disarm()
			r.suspendSource(r.channel, keyCompletions)
			return
		}
		if !ok {
			return
		}
		s := r.stateOf(cq)
		s.disarm()
		r.stats.Events++
		if s.unacked++; s.unacked == ackBatch {
			s.cq.AckEvents(s.unacked)
			s.unacked = 0
		}
	}
}
