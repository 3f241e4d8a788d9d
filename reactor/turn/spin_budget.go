//go:build !verbena_model

package turn

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Bounds of a budget, in costs of arming, sleeping and being woken.
const (
	// maxCosts: who answers within a few times the cost of a wake-up is worth waiting
	// for, even if that takes longer than the wake-up; beyond it the processor is.
	maxCosts = 16
	// minCostPart is the part of the cost that is spent all the same when nothing came
	// lately, to notice that something comes again.
	minCostPart = 8
	// maxCost bounds the cost: a measurement that was disturbed.
	maxCost = 200 * time.Microsecond
)

// Budget is the budget of a loop and its drivers for spinning. It follows what came
// of it:
//
//	woken sooner after arming than the largest budget ──> twice as long
//	spun in vain, and slept for longer than that      ──> half as long
//
// between an eighth and 16 times of what arming, sleeping and waking cost here: as
// the kernel's halt_poll does for a virtual processor (Linux
// Documentation/virt/kvm/halt-polling.rst).
type Budget struct {
	least, most int64 // ns
	// current, in ns: written by the loop; read by drivers and Budget; publishes
	// nothing.
	current atomic.Int64
	// armedAt is when the turn was left with all armed, in ns since epoch: written by
	// who leaves; read by the loop when it wakes; publishes nothing.
	armedAt atomic.Int64
}

// NewBudget makes a budget that begins at cost: what arming, sleeping and being
// woken takes.
func NewBudget(cost time.Duration) *Budget {
	c := int64(min(max(cost, time.Microsecond), maxCost))
	p := &Budget{least: c / minCostPart, most: c * maxCosts}
	p.current.Store(c)
	return p
}

// Time is for how long the loop, or a driver, spins at present. Any goroutine.
func (p *Budget) Time() time.Duration { return time.Duration(p.current.Load()) }

// noteArmed notes that all is armed. Whoever leaves the turn asleep.
func (p *Budget) noteArmed() { p.armedAt.Store(now()) }

// noteWakeup learns from how long it was quiet. The loop, when it woke.
func (p *Budget) noteWakeup() {
	b := p.current.Load()
	if quiet := now() - p.armedAt.Load(); quiet <= p.most {
		b = min(2*b, p.most)
	} else {
		b = max(b/2, p.least)
	}
	p.current.Store(b)
}

// epoch is where now counts from.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// How a spinner breathes.
const (
	// yieldEvery is how many rounds it makes before it lets other goroutines run: it
	// costs about as much as one of them, and more if another thread is woken for it.
	yieldEvery = 16
	// clockEvery is how many it makes between two looks at the clock.
	clockEvery = 4
	// pauseLoads is how many loads are the pause between two looks of the loop: about as
	// long as an empty turn, so that a caller finds the turn free half the time.
	// pauseLoadsDriven are the pause while callers drive, who are back in a moment: as long
	// as a few of their operations, which the loop would only disturb.
	pauseLoads       = 64
	pauseLoadsDriven = 1024
	// pinnedYieldEvery is after how long a loop that is locked to its thread lets others
	// run: that takes 5 to 20 µs, because another thread has to be woken, and for the
	// way back.
	pinnedYieldEvery = int64(time.Millisecond)
	// pollEvery is how often a spinning loop looks at its channels, which costs a
	// system call.
	pollEvery = int64(20 * time.Microsecond)
)

// spinRun is one time of spinning: of the goroutine that spins.
type spinRun struct {
	rounds              int
	began, readAt       int64
	polledAt, yieldedAt int64
	drives              uint64        // Stats.Drives at the last look
	unused              atomic.Uint32 // is loaded to let time pass: nobody writes it
}

func (s *spinRun) local() int { return 0 }

// tick counts a round and reads the clock now and then.
func (s *spinRun) tick() {
	if s.rounds++; s.began == 0 {
		s.readAt = now()
		s.began, s.polledAt, s.yieldedAt = s.readAt, s.readAt, s.readAt
	} else if s.rounds%clockEvery == 0 {
		s.readAt = now()
	}
}

// loopPause is the pause between two looks of a spinning loop. It tells whether it spun
// for long enough.
func (t *Token) loopPause(s *spinRun) (over bool) {
	s.tick()
	switch {
	case t.cfg.Pinned:
		if s.readAt-s.yieldedAt > pinnedYieldEvery {
			s.yieldedAt = s.readAt
			runtime.Gosched()
		}
		t.pauseAway(s)
	case s.rounds%yieldEvery == 1:
		runtime.Gosched() // at first: who was given a result runs before the next look
	default:
		t.pauseAway(s)
	}
	return t.cfg.SpinMode == SpinTimed && s.readAt-s.began > t.cfg.Budget.current.Load()
}

// pauseAway leaves the word alone for a moment, and for longer while callers drive.
func (t *Token) pauseAway(s *spinRun) {
	loads := pauseLoads
	if d := t.stats.Drives.Load(); d != s.drives {
		s.drives, loads = d, pauseLoadsDriven
	}
	for range loads {
		s.unused.Load()
	}
}

// pollChannels asks the channels now and then.
func (t *Token) pollChannels(s *spinRun) WakeReason {
	if s.readAt-s.polledAt < pollEvery {
		return 0
	}
	s.polledAt = s.readAt
	return t.sleep.Poll()
}

// noteFound and vain count what came of spinning.
func (t *Token) noteFound()  {}
func (t *Token) noteInVain() { t.stats.SpinsInVain.Add(1) }

// noteArmed notes that the turn is left with all armed.
func (t *Token) noteArmed() {
	if t.cfg.SpinMode == SpinTimed {
		t.cfg.Budget.noteArmed()
	}
}

// noteWakeup notes that the loop woke. A timer says nothing of traffic.
func (t *Token) noteWakeup(wake WakeReason) {
	if t.cfg.SpinMode == SpinTimed && wake&WakeTimer == 0 {
		t.cfg.Budget.noteWakeup()
	}
}

// driverExpired tells whether a driver that found nothing idle times leaves.
func (t *Token) driverExpired(idle int, s *spinRun) bool {
	switch t.cfg.SpinMode {
	case SpinPasses:
		return idle > t.cfg.Spin
	case SpinAlways:
		return false
	}
	if idle == 1 {
		*s = spinRun{}
	}
	s.tick()
	return s.readAt-s.began > t.cfg.Budget.current.Load()
}

// driverPause is the pause of a driver between two turns.
func (t *Token) driverPause(idle int, _ Parker) {
	if t.cfg.SpinMode == SpinPasses || idle%yieldEvery == 1 {
		runtime.Gosched()
	}
}
