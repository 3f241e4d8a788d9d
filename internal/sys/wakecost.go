package sys

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// wakeRounds is the number of wake-ups that WakeCost measures; the median counts, because
// scheduling delays distort some.
const wakeRounds = 15

// wakeKey is the key of the source in WakeCost.
const wakeKey = 1

// wakeCosts are the measured values: with a descriptor in the epoll set and without.
var wakeCosts [2]struct {
	mu   sync.Mutex    // held during the measurement
	cost time.Duration // 0: not measured yet
}

// WakeCost returns the time from the event of a source like s until a goroutine that sleeps in a
// [Poller] runs. It is measured once for sources with a descriptor and once for those that
// announce themselves, which takes some milliseconds. s must not be in a poller. Any goroutine
// may call it.
//
// Errors: those of making a poller and an event, for example that the process has no descriptor left.
// A later call then measures.
func WakeCost(s Source) (time.Duration, error) {
	i := 0
	if !Announces(s) && s.FD() >= 0 {
		i = 1
	}
	w := &wakeCosts[i]
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cost == 0 {
		cost, err := measureWake(i == 1)
		if err != nil {
			return 0, err
		}
		w.cost = max(cost, 1)
	}
	return w.cost, nil
}

// errNoDescriptor means that an event has no descriptor to be polled by.
var errNoDescriptor = errors.New("sys: no descriptor for an event")

// Announces reports whether a source, which must not be in a poller, announces its own events:
// they come from this process. Any goroutine may call it.
func Announces(s Source) (does bool) {
	s.Notify(func() { does = true })
	s.Notify(nil)
	return does
}

// byDescriptor is an event that is polled by its descriptor only.
type byDescriptor struct{ *Event }

// Notify does nothing.
func (byDescriptor) Notify(func()) {}

func measureWake(descriptor bool) (cost time.Duration, err error) {
	p, err := NewPoller()
	if err != nil {
		return 0, err
	}
	defer p.Close()
	ev, err := NewEvent()
	if err != nil {
		return 0, err
	}
	defer ev.Close()
	var s Source = ev
	if descriptor {
		if ev.FD() < 0 {
			return 0, errNoDescriptor
		}
		s = byDescriptor{ev}
	}
	if err := p.Attach(s, wakeKey); err != nil {
		return 0, err
	}
	awake, again := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(awake)
		var keys [2]uint32
		for range again {
			for ev.Drain() == 0 {
				if _, err := p.Wait(time.Time{}, keys[:]); err != nil {
					return
				}
			}
			awake <- time.Now()
		}
	}()
	var took []time.Duration
	for range wakeRounds {
		again <- struct{}{}
		time.Sleep(wakeSettle)
		began := time.Now()
		ev.Signal()
		at, ok := <-awake
		if !ok {
			return 0, ErrPollerClosed
		}
		took = append(took, at.Sub(began))
	}
	close(again)
	<-awake
	slices.Sort(took)
	return took[len(took)/2], nil
}

// wakeSettle is the time for the sleeper to fall asleep: falling asleep takes microseconds, and a
// processor that has been idle for less time wakes faster than one in deeper sleep.
const wakeSettle = 200 * time.Microsecond
