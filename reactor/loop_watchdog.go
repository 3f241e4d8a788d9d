package reactor

import "time"

// watchdog checks the queues of a reactor that have a PeerLimit: one timer for all.
//
//	       SetPeerLimit             tick                  tick, sends are outstanding
//	(off) ──────────────> (waking) ──────────> (on) ────────────────┐
//	  ^                      ^                  │ ^                  │
//	  │ tick, no queue       │ a pass with      │ └──────────────────┘
//	  │ has a limit          │ sends            │ tick, no sends are outstanding
//	  │                      │ outstanding      v
//	  └───────────────────── └───────────── (idle)
//
// A tick checks every queue with a limit. While sends are outstanding there are eight ticks in the
// smallest Bound; when idle, only ticks for keep-alives. Operations pay for none of it but one
// comparison per pass, and an idle reactor sleeps. The fields belong to the holder; the loop runs
// the ticks.
type watchdog struct {
	state    watchdogState
	limited  int // queues with a limit
	timer    Timer
	call     call          // wakes it; queued only in state watchdogWaking
	last     time.Duration // the last tick, on the timers' clock
	interval time.Duration // the intended time from that to the next tick
	spared   bool          // the last tick reported no queue, because the process had not run
	busy     int           // queues with sends outstanding at the last tick
	expired  []*Queue      // scratch of checkPeers
	tick     func()        // the timer's function
}

type watchdogState uint8

const (
	watchdogOff watchdogState = iota
	watchdogWaking
	watchdogOn
	watchdogIdle
)

// ticksPerBound is how many ticks there are in the smallest Bound: a Bound ends at most one tick
// late.
const ticksPerBound = 8

// One tick counts at most max(interval*lateFactor, interval+lateBy). If more time has passed, this
// process did not run: it was stopped, or starved. The peer may have answered meanwhile, and the
// next poll finds its answer. On a busy machine a timer may be late by lateBy, so that a short
// interval takes several times as long.
const (
	lateFactor = 2
	lateBy     = 50 * time.Millisecond
)

func (p *watchdog) init(r *Reactor) {
	p.timer.index = -1
	p.call.fn = func() { r.checkPeers(true) }
	p.tick = func() { r.checkPeers(false) }
}

// wake has the loop tick soon. It does not allocate.
func (p *watchdog) wake(r *Reactor) {
	if p.state == watchdogWaking {
		return
	}
	p.state = watchdogWaking
	r.calls.Push(&p.call)
	r.tok.Submitted()
	r.afterClose()
}

// checkPeers is one tick: it checks every queue with a limit, and sets the timer for the next tick.
// called is set in the tick that wake has queued; only that tick leaves the state waking, because
// the call must not be queued twice.
func (r *Reactor) checkPeers(called bool) {
	p := &r.watchdog
	now := r.cfg.Now().Sub(r.timers.base)
	step := now - p.last
	stopped := step/lateFactor > p.interval && step-p.interval > lateBy
	if stopped {
		step = max(p.interval*lateFactor, p.interval+lateBy)
	}
	spare := stopped && !p.spared // one more interval, in which waiting answers are polled
	p.spared = spare
	wait, pace, asked := time.Duration(never), time.Duration(never), false
	crowd := 0
	for _, q := range r.queues {
		if q != nil && q.order.len() > 0 {
			crowd++
		}
	}
	shared := max(crowd, p.busy) // queues that became idle since had a share, too
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
	// A user that sends requests one by one often has none outstanding at a tick. So a tick that
	// wake has queued is followed by another one; otherwise every send would call wake.
	busy := asked || called || r.outstanding > 0
	if busy {
		wait = min(wait, pace)
	}
	if p.state != watchdogWaking || called {
		switch {
		case p.limited == 0:
			p.state = watchdogOff
		case wait != never && (busy || pace == never): // in all other cases a pass calls wake
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
	r.Drain() // completions that wait in the completion queues came in time
	for i := 0; i < len(p.expired); i++ {
		p.expired[i].reportTimeout(now)
	}
	clear(p.expired)
	p.expired = p.expired[:0]
}
