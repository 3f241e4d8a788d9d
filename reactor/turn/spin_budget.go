//go:build !verbena_model

package turn

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Bounds of a budget. The cost is the time that arming, sleeping and being woken take.
const (
	// The largest budget is maxCosts times the cost. If a peer answers within a few times the cost,
	// spinning shortens the round trip by a large part, which is worth the processor time. If the
	// answer takes more than 16 times the cost, spinning saves too little.
	maxCosts = 16
	// The smallest budget is the cost divided by minCostPart. It is not 0, so that the loop spins a
	// little, and can notice new traffic, even after a long time without traffic.
	minCostPart = 8
	// maxCost replaces a larger measured cost: the measurement may have been disturbed.
	maxCost = 200 * time.Microsecond
)

// Budget is the spin budget of a loop and its drivers: how long they spin before they arm. When the
// loop wakes, the budget adapts to the time since the arming:
//
//	the time is at most the largest budget ──> the budget doubles
//	the time is longer                     ──> the budget is halved
//
// The budget stays between 1/8 and 16 times the cost of arming, sleeping and being woken on this
// machine. The kernel's halt_poll adapts in the same way for a virtual processor (Linux
// Documentation/virt/kvm/halt-polling.rst).
type Budget struct {
	least, most int64 // the bounds of current, in ns
	// current is the present budget in ns. The loop writes it. The loop, drivers and Time read it. It
	// publishes no other data.
	current atomic.Int64
	// armedAt is the time at which the turn was last released with all queues armed, in ns since
	// epoch. The holder that releases the turn writes it. The loop reads it when the loop wakes. It
	// publishes no other data.
	armedAt atomic.Int64
}

// NewBudget returns a budget that begins at the cost: the time that arming, sleeping and being
// woken take. A cost below 1 µs counts as 1 µs, and a cost above maxCost as maxCost.
func NewBudget(cost time.Duration) *Budget {
	c := int64(min(max(cost, time.Microsecond), maxCost))
	p := &Budget{least: c / minCostPart, most: c * maxCosts}
	p.current.Store(c)
	return p
}

// Time returns the present budget: how long the loop or a driver spins. Any goroutine may call Time.
func (p *Budget) Time() time.Duration { return time.Duration(p.current.Load()) }

// noteArmed records the present time in armedAt. The holder calls it before it releases the turn.
func (p *Budget) noteArmed() { p.armedAt.Store(now()) }

// noteWakeup adapts the budget to the time since armedAt. The loop calls it when it wakes.
func (p *Budget) noteWakeup() {
	b := p.current.Load()
	if quiet := now() - p.armedAt.Load(); quiet <= p.most {
		b = min(2*b, p.most)
	} else {
		b = max(b/2, p.least)
	}
	p.current.Store(b)
}

// epoch is the time from which now() counts.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// How a spinning goroutine pauses. A round is one iteration of the loop in spinWait, or one empty pass
// of a driver.
const (
	// yieldEvery is the number of rounds between two yields of a spinning goroutine. A yield costs
	// about as much as a round, and more if it wakes another thread.
	yieldEvery = 16
	// clockEvery is the number of rounds between two clock readings of a spinning goroutine.
	clockEvery = 4
	// Between two looks, the loop pauses by loading spinRun.unused many times. A pause of pauseLoads
	// loads takes about as long as an empty pass, so a caller finds the turn free half of the time.
	// While callers drive, the loop makes pauses of pauseLoadsDriven loads. Such a pause takes as long
	// as a few operations of the callers, which a look would only disturb.
	pauseLoads       = 64
	pauseLoadsDriven = 1024
	// pinnedYieldEvery is the interval, in ns, at which a loop that is locked to its thread yields.
	// Such a yield takes 5 to 20 µs, because Go must switch to another thread and back.
	pinnedYieldEvery = int64(time.Millisecond)
	// pollEvery is the interval, in ns, at which a spinning loop calls Sleeper.Poll, which costs a
	// system call.
	pollEvery = int64(20 * time.Microsecond)
)

// spinRun is the state of one run of spinning; it belongs to the goroutine that spins.
type spinRun struct {
	rounds              int
	began, readAt       int64
	polledAt, yieldedAt int64
	drives              uint64        // Stats.Drives at the last pause
	unused              atomic.Uint32 // loaded to let time pass; never written
}

func (s *spinRun) local() int { return 0 }

// tick counts a round. It reads the clock in the first round and then every clockEvery rounds.
func (s *spinRun) tick() {
	if s.rounds++; s.began == 0 {
		s.readAt = now()
		s.began, s.polledAt, s.yieldedAt = s.readAt, s.readAt, s.readAt
	} else if s.rounds%clockEvery == 0 {
		s.readAt = now()
	}
}

// loopPause pauses between two looks of the spinning loop. It reports whether the spinning has
// exceeded the budget.
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
		runtime.Gosched() // in the first round, too, so that a goroutine that just got its result runs before the next look
	default:
		t.pauseAway(s)
	}
	switch t.cfg.SpinMode {
	case SpinPasses:
		return s.rounds > t.cfg.Spin
	case SpinTimed:
		return s.readAt-s.began > t.cfg.Budget.current.Load()
	}
	return false
}

// pauseAway pauses without accessing the token's word. The pause is longer if callers have begun to
// drive since the last pause.
func (t *Token) pauseAway(s *spinRun) {
	loads := pauseLoads
	if d := t.stats.Drives.Load(); d != s.drives {
		s.drives, loads = d, pauseLoadsDriven
	}
	for range loads {
		s.unused.Load()
	}
}

// pollChannels calls Sleeper.Poll if pollEvery has passed since the last call.
func (t *Token) pollChannels(s *spinRun) WakeReason {
	if s.readAt-s.polledAt < pollEvery {
		return 0
	}
	s.polledAt = s.readAt
	return t.sleep.Poll()
}

// noteInVain records that spinning has ended because the budget is over and the loop found nothing.
func (t *Token) noteInVain() { t.stats.SpinsInVain.Add(1) }

// noteArmed records that the turn is released with all queues armed.
func (t *Token) noteArmed() {
	if t.cfg.SpinMode == SpinTimed {
		t.cfg.Budget.noteArmed()
	}
}

// noteWakeup adapts the budget when the loop wakes. A wake-up by a timer does not count, because it
// is no sign of traffic.
func (t *Token) noteWakeup(wake WakeReason) {
	if t.cfg.SpinMode == SpinTimed && wake&WakeTimer == 0 {
		t.cfg.Budget.noteWakeup()
	}
}

// driverExpired reports whether a driver must leave because it found no work. The argument idle is
// the number of empty passes in a row.
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

// driverPause pauses a driver between two passes.
func (t *Token) driverPause(idle int, _ Parker) {
	if t.cfg.SpinMode == SpinPasses || idle%yieldEvery == 1 {
		runtime.Gosched()
	}
}
