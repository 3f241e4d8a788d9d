package fabric

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	awake = int64(-1)            // the pacemaker checks everything before it sleeps
	never = int64(math.MaxInt64) // it sleeps until it is woken
)

// pacemaker is the goroutine of a fabric in real time. It sleeps until the earliest deadline of an
// endpoint or of a delayed packet, and runs the ports that others left to it.
//
//	       ┌──────── awake ◄────────────────┐
//	       │ wakeAt = t, look once more     │ time t, or woken
//	       ▼                                │
//	something earlier? ── no ──► asleep until t
//	       │ yes: awake
//
// No wake-up is lost: a goroutine sets a deadline or pushes work before it loads wakeAt, and the
// pacemaker stores wakeAt before it looks once more. One of the two sees the other.
//
// A deadline that moves later wakes nothing: the pacemaker wakes at the old one, finds it gone, and
// sleeps on.
type pacemaker struct {
	// wakeAt is the pacemaker's wake-up time in ns, awake or never. Written by the pacemaker, read
	// by any goroutine.
	wakeAt atomic.Int64
	wakeup chan struct{} // one token: further wake-ups change nothing
	// deferred is the ports left by others; taken by the pacemaker.
	deferred portInbox
}

func (m *pacemaker) init() {
	m.wakeup = make(chan struct{}, 1)
	m.wakeAt.Store(awake)
}

// wake wakes the pacemaker if it sleeps.
func (m *pacemaker) wake() {
	if m.wakeAt.Load() == awake {
		return
	}
	select {
	case m.wakeup <- struct{}{}:
	default:
	}
}

// wakeBefore wakes the pacemaker if it would sleep past deadline d; 0 is none.
func (m *pacemaker) wakeBefore(d int64) {
	if d != 0 && d < m.wakeAt.Load() {
		m.wake()
	}
}

// deferPort leaves p to the pacemaker.
func (f *Fabric) deferPort(p *Port) {
	if p.deferred.CompareAndSwap(false, true) {
		f.pace.deferred.Push(p)
		f.pace.wake()
	}
}

// runPacemaker is the goroutine's body. It ends when stop is closed.
func (f *Fabric) runPacemaker(stop, done chan struct{}) {
	defer close(done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		f.pace.wakeAt.Store(awake)
		f.runDeferred()
		f.runDelayed()
		next := f.runDeadlines()

		f.pace.wakeAt.Store(next)
		if !f.pace.deferred.Empty() || !f.delay.incoming.empty() || f.earliest() < next {
			runtime.Gosched() // yield the processor in case of endless work
			select {
			case <-stop:
				return
			default:
				continue
			}
		}
		var due <-chan time.Time
		if next != never {
			timer.Reset(time.Duration(next - int64(f.Now())))
			due = timer.C
		}
		select {
		case <-stop:
			return
		case <-f.pace.wakeup:
		case <-due:
		}
	}
}

// runDeferred runs the ports left by others.
func (f *Fabric) runDeferred() {
	for p := f.pace.deferred.TakeAll(); p != nil; {
		next := p.deferHook.Unlink()
		p.deferred.Store(false) // before running: a later deferPort is not lost
		f.run(p)
		p = next
	}
}

// runDelayed delivers the delayed packets that are due.
func (f *Fabric) runDelayed() {
	f.delay.collect()
	now := int64(f.Now())
	for k := f.delay.due(now); k != nil; k = f.delay.due(now) {
		if to := f.arrive(k); to != nil {
			f.run(to)
		}
	}
}

// runDeadlines runs the ports whose deadline has come, and returns the next due time.
func (f *Fabric) runDeadlines() (next int64) {
	now := int64(f.Now())
	for _, p := range *f.ports.Load() {
		d := p.deadline.Load()
		if d == 0 || d > now {
			continue
		}
		// Zeroed first: if another goroutine runs the port, the mark makes it run once more, and
		// that run sets the deadline anew.
		p.deadline.CompareAndSwap(d, 0)
		f.run(p)
	}
	return min(f.earliest(), f.delay.next())
}

// run runs p here, or leaves a mark for its runner.
func (f *Fabric) run(p *Port) {
	if p.token.take() {
		f.drive(p, paceBudget)
	}
}

// earliest returns the earliest deadline of an endpoint, or never.
func (f *Fabric) earliest() int64 {
	t := never
	for _, p := range *f.ports.Load() {
		if d := p.deadline.Load(); d != 0 {
			t = min(t, d)
		}
	}
	return t
}
