package reactor

import "time"

// watchdog checks the queues that have a PeerLimit. There is one watchdog, with one timer, for all
// queues of a reactor.
//
//	     SetPeerLimit            tick          tick without outstanding sends
//	off ──────────────> waking ────────> on ──────────────────────────────────> idle
//	                      ^                                                       │
//	                      └───── SetPeerLimit, or a pass with outstanding sends ──┘
//
// A tick checks every queue with a limit. If there is none, the state becomes off. If no limit has
// a Bound, the state stays on. While sends are outstanding there are ticksPerBound ticks in the
// smallest Bound; otherwise only those for keep-alives. The watchdog costs a pass one comparison,
// and lets an idle reactor sleep. The fields belong to the holder; the loop runs the ticks.
type watchdog struct {
	state    watchdogState
	limited  int // queues with a limit
	timer    Timer
	call     call          // runs a tick; queued only in state watchdogWaking
	last     time.Duration // the last tick, on the timers' clock
	interval time.Duration // the intended time from last to the next tick
	spared   bool          // the last tick reported no timeouts, because the process had been stopped
	busy     int           // how many queues had sends outstanding at the last tick
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

// ticksPerBound is how many ticks there are in the smallest Bound. So OnTimeout is at most one tick
// late.
const ticksPerBound = 8

// A tick adds the time since the last tick to a queue's silence, but at most
// max(interval*lateFactor, interval+lateBy). If more time has passed, this process was stopped or
// starved: the peer may have answered meanwhile, and the next poll finds the answer. lateBy is how
// late a timer may be on a busy machine; it may be several times a short interval.
const (
	lateFactor = 2
	lateBy     = 50 * time.Millisecond
)

func (p *watchdog) init(r *Reactor) {
	p.timer.index = -1
	p.call.fn = func() { r.checkPeers(true) }
	p.tick = func() { r.checkPeers(false) }
}

// wake has the loop run a tick soon. It does not allocate.
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
// The argument called means that the method wake has queued this tick. Only such a tick ends the
// state watchdogWaking, because p.call must not be queued twice.
func (r *Reactor) checkPeers(called bool) {
	p := &r.watchdog
	now := r.cfg.Now().Sub(r.timers.base)
	step := now - p.last
	stopped := step/lateFactor > p.interval && step-p.interval > lateBy
	if stopped {
		step = max(p.interval*lateFactor, p.interval+lateBy)
	}
	spare := stopped && !p.spared // grant one more interval, in which answers that have arrived are polled
	p.spared = spare
	wait, pace, asked := time.Duration(never), time.Duration(never), false
	crowd := 0
	for _, q := range r.queues {
		if q != nil && q.order.len() > 0 {
			crowd++
		}
	}
	shared := max(crowd, p.busy) // queues that became idle since the last tick had a share of the wire, too
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
	// A user that submits one request at a time often has none outstanding at a tick. If the state
	// became watchdogIdle then, nearly every request would call wake. So another tick follows each
	// tick that wake has queued.
	busy := asked || called || r.outstanding > 0
	if busy {
		wait = min(wait, pace)
	}
	if p.state != watchdogWaking || called {
		switch {
		case p.limited == 0:
			p.state = watchdogOff
		case wait != never && (busy || pace == never): // not on: the next pass with outstanding sends calls wake
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
	r.Drain() // a completion that is there and not polled yet came in time
	for i := 0; i < len(p.expired); i++ {
		p.expired[i].reportTimeout(now)
	}
	clear(p.expired)
	p.expired = p.expired[:0]
}
