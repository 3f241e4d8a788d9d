//go:build !verbena_model

package turn

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Bounds of a budget, in costs of arming, sleeping and being woken.
const (
	// paceMost: who answers within a few times the cost of a wake-up is worth waiting
	// for, even if that takes longer than the wake-up; beyond it the processor is.
	paceMost = 16
	// paceLeast is the part of the cost that is spent all the same when nothing came
	// lately, to notice that something comes again.
	paceLeast = 8
	// paceCap bounds the cost: a measurement that was disturbed.
	paceCap = 200 * time.Microsecond
)

// Pace is the budget of a loop and its drivers for spinning. It follows what came
// of it:
//
//	woken sooner after arming than the largest budget ──> twice as long
//	spun in vain, and slept for longer than that      ──> half as long
//
// between an eighth and 16 times of what arming, sleeping and waking cost here: as
// the kernel's halt_poll does for a virtual processor (Linux
// Documentation/virt/kvm/halt-polling.rst).
type Pace struct {
	least, most int64 // ns
	// budget, in ns: written by the loop; read by drivers and Budget; publishes
	// nothing.
	budget atomic.Int64
	// armed is when the turn was left with all armed, in ns since epoch: written by
	// who leaves; read by the loop when it wakes; publishes nothing.
	armed atomic.Int64
}

// NewPace makes a budget that begins at cost: what arming, sleeping and being
// woken takes.
func NewPace(cost time.Duration) *Pace {
	c := int64(min(max(cost, time.Microsecond), paceCap))
	p := &Pace{least: c / paceLeast, most: c * paceMost}
	p.budget.Store(c)
	return p
}

// Budget is for how long the loop, or a driver, spins at present. Any goroutine.
func (p *Pace) Budget() time.Duration { return time.Duration(p.budget.Load()) }

// slept notes that all is armed. Whoever leaves the turn asleep.
func (p *Pace) slept() { p.armed.Store(now()) }

// awoke learns from how long it was quiet. The loop, when it woke.
func (p *Pace) awoke() {
	b := p.budget.Load()
	if quiet := now() - p.armed.Load(); quiet <= p.most {
		b = min(2*b, p.most)
	} else {
		b = max(b/2, p.least)
	}
	p.budget.Store(b)
}

// epoch is where now counts from.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// How a spinner breathes.
const (
	// spinRounds is how many rounds it makes before it lets other goroutines run: it
	// costs about as much as one of them, and more if another thread is woken for it.
	spinRounds = 16
	// clockRounds is how many it makes between two looks at the clock.
	clockRounds = 4
	// spinLoads is how many loads are the pause between two looks of the loop: about as
	// long as an empty turn, so that a caller finds the turn free half the time.
	// drivenLoads are the pause while callers drive, who are back in a moment: as long
	// as a few of their operations, which the loop would only disturb.
	spinLoads   = 64
	drivenLoads = 1024
	// pinnedYield is after how long a loop that is locked to its thread lets others
	// run: that takes 5 to 20 µs, because another thread has to be woken, and for the
	// way back.
	pinnedYield = int64(time.Millisecond)
	// lookEvery is how often a spinning loop looks at its channels, which costs a
	// system call.
	lookEvery = int64(20 * time.Microsecond)
)

// spell is one time of spinning: of the goroutine that spins.
type spell struct {
	rounds          int
	began, at       int64
	looked, yielded int64
	drives          uint64        // Stats.Drives at the last look
	nothing         atomic.Uint32 // is loaded to let time pass: nobody writes it
}

func (s *spell) local() int { return 0 }

// tick counts a round and reads the clock now and then.
func (s *spell) tick() {
	if s.rounds++; s.began == 0 {
		s.at = now()
		s.began, s.looked, s.yielded = s.at, s.at, s.at
	} else if s.rounds%clockRounds == 0 {
		s.at = now()
	}
}

// breathe is the pause between two looks of a spinning loop. It tells whether it spun
// for long enough.
func (t *Token) breathe(s *spell) (over bool) {
	s.tick()
	switch {
	case t.cfg.Pinned:
		if s.at-s.yielded > pinnedYield {
			s.yielded = s.at
			runtime.Gosched()
		}
		t.outwait(s)
	case s.rounds%spinRounds == 1:
		runtime.Gosched() // at first: who was given a result runs before the next look
	default:
		t.outwait(s)
	}
	return t.cfg.Spinning == SpinBudget && s.at-s.began > t.cfg.Pace.budget.Load()
}

// outwait leaves the word alone for a moment, and for longer while callers drive.
func (t *Token) outwait(s *spell) {
	loads := spinLoads
	if d := t.stats.Drives.Load(); d != s.drives {
		s.drives, loads = d, drivenLoads
	}
	for range loads {
		s.nothing.Load()
	}
}

// look asks the channels now and then.
func (t *Token) look(s *spell) Wake {
	if s.at-s.looked < lookEvery {
		return 0
	}
	s.looked = s.at
	return t.sleep.Look()
}

// met and vain count what came of spinning.
func (t *Token) met()  {}
func (t *Token) vain() { t.stats.InVain.Add(1) }

// slept notes that the turn is left with all armed.
func (t *Token) slept() {
	if t.cfg.Spinning == SpinBudget {
		t.cfg.Pace.slept()
	}
}

// awoke notes that the loop woke. A timer says nothing of traffic.
func (t *Token) awoke(wake Wake) {
	if t.cfg.Spinning == SpinBudget && wake&WakeTimer == 0 {
		t.cfg.Pace.awoke()
	}
}

// tires tells whether a driver that found nothing idle times leaves.
func (t *Token) tires(idle int, s *spell) bool {
	switch t.cfg.Spinning {
	case SpinTurns:
		return idle > t.cfg.Spin
	case SpinAlways:
		return false
	}
	if idle == 1 {
		*s = spell{}
	}
	s.tick()
	return s.at-s.began > t.cfg.Pace.budget.Load()
}

// rest is the pause of a driver between two turns.
func (t *Token) rest(idle int, _ Parker) {
	if t.cfg.Spinning == SpinTurns || idle%spinRounds == 1 {
		runtime.Gosched()
	}
}
