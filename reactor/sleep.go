package reactor

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// Keys of the poller. Below keyUser they are the reactor's own.
const (
	keyCompletions uint32 = 0
	keyUser        uint32 = 1
	maxKeys               = 32 // one bit each in errands.events
)

// sleeper is what the loop sleeps on: the poller with the channels attached.
type sleeper struct {
	r    *Reactor
	poll *sys.Poller // nil when stepped
	keys [maxKeys]uint32
}

func newSleeper(r *Reactor) (*sleeper, error) {
	s := &sleeper{r: r}
	if r.cfg.Stepped {
		return s, nil
	}
	p, err := sys.NewPoller()
	if err != nil {
		return nil, err
	}
	s.poll = p
	if err := p.Attach(r.channel, keyCompletions); err != nil {
		return s, err
	}
	return s, nil
}

// Ring implements turn.Sleeper.
func (s *sleeper) Ring() {
	if s.poll != nil {
		s.poll.Ring()
	}
}

// Wait implements turn.Sleeper. The events stay in their channels until the
// holder takes them.
func (s *sleeper) Wait(deadline time.Time) turn.Wake {
	n, err := s.poll.Wait(deadline, s.keys[:])
	if err != nil {
		return turn.WakeClosed
	}
	var wake turn.Wake
	for _, k := range s.keys[:n] {
		s.r.events.Or(1 << k)
		wake |= turn.WakeEvent
	}
	if s.r.timers.due(s.r.cfg.Now) {
		wake |= turn.WakeTimer
	}
	return wake
}

// Watch has fn called, holding the turn, whenever the source may have events;
// fn takes them all. It is for connection and asynchronous events. A stepped
// reactor calls fn every Step. Holder only.
func (r *Reactor) Watch(s verbs.Source, fn func()) error {
	for key := keyUser; key < maxKeys; key++ {
		if r.handlers[key] != nil {
			continue
		}
		r.handlers[key] = fn
		if r.cfg.Stepped {
			r.watched |= 1 << key
			r.sources = append(r.sources, watchedSource{s, key})
			return nil
		}
		if err := r.sleep.poll.Attach(s, key); err != nil {
			delete(r.handlers, key)
			return err
		}
		r.sources = append(r.sources, watchedSource{s, key})
		return nil
	}
	return fmt.Errorf("%w: %d sources watched", ErrTooMany, maxKeys-1)
}

// Unwatch ends Watch; the source may then be closed. Holder only.
func (r *Reactor) Unwatch(s verbs.Source) error {
	for i, w := range r.sources {
		if w.s != s {
			continue
		}
		r.sources = append(r.sources[:i], r.sources[i+1:]...)
		delete(r.handlers, w.key)
		r.watched &^= 1 << w.key
		if r.cfg.Stepped {
			return nil
		}
		return r.sleep.poll.Detach(w.key)
	}
	return nil
}

type watchedSource struct {
	s   verbs.Source
	key uint32
}

// takeEvents takes the events of the completion channel. An event says "poll",
// which every turn does; here only the arming is noted and the
// acknowledgement counted.
func (r *Reactor) takeEvents() {
	for {
		cq, ok, err := r.channel.GetEvent()
		if err != nil || !ok {
			return
		}
		s := r.stateOf(cq)
		s.armed = false
		r.stats.Events++
		if s.unacked++; s.unacked == ackBatch {
			s.cq.AckEvents(s.unacked)
			s.unacked = 0
		}
	}
}
