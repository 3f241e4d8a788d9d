package reactor

import "time"

// watchdog looks at the limited queues of a reactor: one timer for all.
//
//	       SetPeerLimit                 the loop               sends are out
//	(off) ──────────> (waking) ─────────────────> (on) ────────────────┐
//	  ^                  ^   a round: every queue  │ ^     next round   │
//	  │ no queue is      │                         │ └──────────────────┘
//	  │ limited          │ a turn with sends out   v no sends are out
//	  └───────────────── └────────────────────── (napping)
//
// While sends are out it goes round eight times in the smallest bound; napping, only
// when a keep-alive is due. So an operation costs one comparison per turn, and a
// reactor with nothing out sleeps. The holder's; rounds are the loop's.
type watchdog struct {
	state    watchdogState
	limited  int // queues with a limit
	timer    Timer
	call     call          // to wake it; on its way in state watchdogWaking alone
	last     time.Duration // the last round, on the timers' clock
	interval time.Duration // how long it meant to wait then
	spared   bool          // the last round blamed nobody, because the process had not run
	busy     int           // queues with sends out in the last round
	expired  []*Queue      // scratch
	tick     func()        // the timer's
}

type watchdogState uint8

const (
	watchdogOff watchdogState = iota
	watchdogWaking
	watchdogOn
	watchdogIdle
)

// ticksPerBound is how many the patrol makes in the smallest bound: a bound ends at most
// one round late.
const ticksPerBound = 8

// lateFactor and lateBy are how many times its wait, and how much longer, a round may
// count for. More has passed only if this process did not run: it was stopped, or
// starved. The peer may have answered meanwhile, and be heard as soon as we run.
// lateBy is a timer's lateness on a busy machine: with short waits twice as long is
// nothing unusual.
const (
	lateFactor = 2
	lateBy     = 50 * time.Millisecond
)

func (p *watchdog) init(r *Reactor) {
	p.timer.index = -1
	p.call.fn = func() { r.checkPeers(true) }
	p.tick = func() { r.checkPeers(false) }
}

// wake has the loop make a round soon. It does not allocate.
func (p *watchdog) wake(r *Reactor) {
	if p.state == watchdogWaking {
		return
	}
	p.state = watchdogWaking
	r.calls.Push(&p.call)
	r.tok.Submitted()
	r.afterClose()
}

// checkPeers looks at every limited queue, and sets the timer for the next one. called is
// for the round that wake asked for: until then the call is on its way.
func (r *Reactor) checkPeers(called bool) {
	p := &r.watchdog
	now := r.cfg.Now().Sub(r.timers.base)
	step := now - p.last
	stopped := step/lateFactor > p.interval && step-p.interval > lateBy
	if stopped {
		step = max(p.interval*lateFactor, p.interval+lateBy)
	}
	spare := stopped && !p.spared // what comes when we run is heard before anybody is blamed
	p.spared = spare
	wait, pace, asked := time.Duration(never), time.Duration(never), false
	crowd := 0
	for _, q := range r.queues {
		if q != nil && q.order.len() > 0 {
			crowd++
		}
	}
	shared := max(crowd, p.busy) // who has ended since had a share, too
	p.busy = crowd
	for _, q := range r.queues {
		if q == nil || q.peerLimit == nil {
			continue
		}
		left, up := q.checkPeer(step, shared)
		switch {
		case up && spare:
			left = max(q.peerLimit.Bound/ticksPerBound, 1)
		case up:
			p.expired = append(p.expired, q)
			left = never
		}
		due, did := q.keepAlive(now)
		wait, asked = min(wait, left, due), asked || did
		if b := q.peerLimit.Bound; b > 0 {
			pace = min(pace, max(b/ticksPerBound, 1))
		}
	}
	// Who sends one by one has nothing out whenever the loop comes by: a round that
	// was asked for is followed by another, or every send would ask for one.
	busy := asked || called || r.outstanding > 0
	if busy {
		wait = min(wait, pace)
	}
	if p.state != watchdogWaking || called {
		switch {
		case p.limited == 0:
			p.state = watchdogOff
		case wait != never && (busy || pace == never): // without a timer a turn must wake it
			p.state = watchdogOn
		default:
			p.state = watchdogIdle
		}
	}
	p.last, p.interval = now, wait
	r.StopTimer(&p.timer)
	if wait != never {
		p.timer.at, p.timer.fn = now+wait, p.tick
		r.timers.add(&p.timer)
	}
	if len(p.expired) == 0 {
		return
	}
	r.Drain() // what lies in the completion queues has come in time
	for i := 0; i < len(p.expired); i++ {
		p.expired[i].reportTimeout(now)
	}
	clear(p.expired)
	p.expired = p.expired[:0]
}
