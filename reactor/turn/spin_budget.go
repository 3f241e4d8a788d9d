//go:build !verbena_model

package turn

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Bounds of a budget, relative to the cost of arming, sleeping and being woken.
const (
	// The largest budget is maxCosts times the cost. If a peer answers within a few times the cost
	// of a wake-up, spinning saves latency that is worth the processor time. Beyond 16 times the
	// cost it is not worth it.
	maxCosts = 16
	// The smallest budget is the cost divided by minCostPart: the loop spins a little even when
	// nothing came lately, to notice new traffic.
	minCostPart = 8
	// maxCost caps the cost, because a measurement of it may have been disturbed.
	maxCost = 200 * time.Microsecond
)

// Budget is the spin budget of a loop and its drivers: how long they spin before they arm. It
// adapts to the time from the arming to the next wake-up:
//
//	up to the largest budget ──> the budget doubles
//	longer                   ──> the budget is halved
//
// The budget stays between 1/8 and 16 times the cost of arming, sleeping and being woken on this
// machine. The kernel's halt_poll does the same for a virtual processor (Linux
// Documentation/virt/kvm/halt-polling.rst).
type Budget struct {
	least, most int64 // ns
	// current, in ns: written by the loop; read by drivers and Time; publishes nothing.
	current atomic.Int64
	// armedAt is when the turn was last released with all queues armed, in ns since epoch: written
	// by the holder that releases the turn; read by the loop when it wakes; publishes nothing.
	armedAt atomic.Int64
}

// NewBudget returns a budget that begins at cost, the time that arming, sleeping and being woken
// take.
func NewBudget(cost time.Duration) *Budget {
	c := int64(min(max(cost, time.Microsecond), maxCost))
	p := &Budget{least: c / minCostPart, most: c * maxCosts}
	p.current.Store(c)
	return p
}

// Time returns how long the loop or a driver spins at present. Any goroutine may call it.
func (p *Budget) Time() time.Duration { return time.Duration(p.current.Load()) }

// noteArmed records the present time as armedAt. The holder that releases the turn calls it.
func (p *Budget) noteArmed() { p.armedAt.Store(now()) }

// noteWakeup adapts the budget to how long the loop slept. The loop calls it when it wakes.
func (p *Budget) noteWakeup() {
	b := p.current.Load()
	if quiet := now() - p.armedAt.Load(); quiet <= p.most {
		b = min(2*b, p.most)
	} else {
		b = max(b/2, p.least)
	}
	p.current.Store(b)
}

// epoch is the origin of now.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// How a spinning goroutine pauses.
const (
	// yieldEvery is how many rounds a goroutine spins before it lets other goroutines run. A yield
	// costs about as much as a round, and more if it wakes another thread.
	yieldEvery = 16
	// clockEvery is how many rounds a goroutine spins between two reads of the clock.
	clockEvery = 4
	// pauseLoads is how many loads of a word make the pause between two looks of the loop. The
	// pause is about as long as an empty pass, so a caller finds the turn free half the time.
	// pauseLoadsDriven is the same while callers drive. It is as long as a few of their operations,
	// which the loop would only disturb.
	pauseLoads       = 64
	pauseLoadsDriven = 1024
	// pinnedYieldEvery is the interval, in ns, at which a loop that is locked to its thread yields.
	// Its yield takes 5 to 20 µs, because Go must switch to another thread and back.
	pinnedYieldEvery = int64(time.Millisecond)
	// pollEvery is the interval, in ns, at which a spinning loop polls its channels. A poll costs a
	// system call.
	pollEvery = int64(20 * time.Microsecond)
)

// spinRun is the state of one run of spinning; it belongs to the goroutine that spins.
type spinRun struct {
	rounds              int
	began, readAt       int64
	polledAt, yieldedAt int64
	drives              uint64        // Stats.Drives at the last look
	unused              atomic.Uint32 // loaded to let time pass; never written
}

func (s *spinRun) local() int { return 0 }

// tick counts a round, and reads the clock every clockEvery rounds.
func (s *spinRun) tick() {
	if s.rounds++; s.began == 0 {
		s.readAt = now()
		s.began, s.polledAt, s.yieldedAt = s.readAt, s.readAt, s.readAt
	} else if s.rounds%clockEvery == 0 {
		s.readAt = now()
	}
}

// loopPause pauses between two looks of the spinning loop. It reports whether the spin budget is
// over.
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
		runtime.Gosched() // also in the first round: a receiver of a result runs before the next look
	default:
		t.pauseAway(s)
	}
	return t.cfg.SpinMode == SpinTimed && s.readAt-s.began > t.cfg.Budget.current.Load()
}

// pauseAway pauses without touching the token's word, longer if callers drove since the last look.
func (t *Token) pauseAway(s *spinRun) {
	loads := pauseLoads
	if d := t.stats.Drives.Load(); d != s.drives {
		s.drives, loads = d, pauseLoadsDriven
	}
	for range loads {
		s.unused.Load()
	}
}

// pollChannels polls the channels if pollEvery has passed.
func (t *Token) pollChannels(s *spinRun) WakeReason {
	if s.readAt-s.polledAt < pollEvery {
		return 0
	}
	s.polledAt = s.readAt
	return t.sleep.Poll()
}

// noteFound and noteInVain record the result of a spin run.
func (t *Token) noteFound()  {}
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

// driverExpired reports whether a driver leaves after idle empty passes in a row.
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
