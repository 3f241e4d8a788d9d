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
// SetPeerLimit also leads from on to waking. But it leaves the state if the next tick comes early enough for
// the new limit: a tick visits all queues, and would take most of the time in which thousands of connections
// are made. A tick checks every queue with a limit, and if no send is outstanding only those whose
// KeepAlive is due (loop_probes.go). Then it sets the
// state and the timer by the first of these cases that applies:
//
//	no queue has a limit                    state off, no ticks
//	no limit has a Bound                    state on, ticks for keep-alives
//	sends are outstanding, or this tick
//	sent a probe or was queued by wake      state on, ticksPerBound ticks in the smallest Bound
//	otherwise                               state idle, ticks for keep-alives
//
// The watchdog costs a pass one comparison, and lets an idle reactor sleep. Only the holder uses the
// fields. The loop runs the ticks.
type watchdog struct {
	state    watchdogState
	limited  int // number of queues with a limit
	timer    Timer
	call     call          // runs a tick; queued only in state watchdogWaking
	last     time.Duration // time of the last tick, on the timers' clock
	interval time.Duration // intended time between the last tick and the next one
	spared   bool          // the last tick ignored timeouts, because the process had been stopped
	busy     int           // number of queues with outstanding sends at the last tick
	pace     time.Duration // the time between two ticks while sends are outstanding; never: no limit has a Bound
	probes   probes        // the queues with a KeepAlive
	expired  []*Queue      // used in checkPeers: the queues that have exceeded their limit
	tick     func()        // the timer's function
}

type watchdogState uint8

const (
	watchdogOff watchdogState = iota
	watchdogWaking
	watchdogOn
	watchdogIdle
)

// ticksPerBound is the number of ticks in the smallest Bound. The watchdog measures the silence of a
// queue from the first tick after the silence began. So OnTimeout is late by at most the time
// between two ticks.
const ticksPerBound = 8

// A tick adds the time since the last tick to the silence of each queue, but at most
// max(interval*lateFactor, interval+lateBy). If more time has passed, this process was stopped or
// starved. Then an answer of the peer may have arrived meanwhile, and the next poll finds it. The sum
// with lateBy is for short intervals: on a busy machine any timer may be late by lateBy.
const (
	lateFactor = 2
	lateBy     = 50 * time.Millisecond
)

func (p *watchdog) init(r *Reactor) {
	p.timer.index = -1
	p.pace = never
	p.call.fn = func() { r.checkPeers(true) }
	p.tick = func() { r.checkPeers(false) }
}

// wake makes the loop run a tick soon. It does not allocate.
func (p *watchdog) wake(r *Reactor) {
	if p.state == watchdogWaking {
		return
	}
	p.state = watchdogWaking
	r.calls.Push(&p.call)
	r.tok.Submitted()
	r.afterClose()
}

// covers reports whether the next tick comes early enough for a new limit. In the state watchdogIdle the next
// pass with outstanding sends causes a tick, so only a KeepAlive needs the timer.
func (p *watchdog) covers(l *peerLimit, now time.Duration) bool {
	at := time.Duration(never)
	if p.timer.index >= 0 {
		at = p.timer.at
	}
	switch {
	case p.state == watchdogOff:
		return false
	case l.KeepAlive > 0 && at > l.probeAt:
		return p.state == watchdogWaking
	case p.state == watchdogOn && l.Bound > 0:
		return at-now <= max(l.Bound/ticksPerBound, 1)
	}
	return true
}

// checkBounds checks the Bound of every queue with a limit, and collects those that have exceeded it in
// watchdog.expired. It returns the time until it must be called again.
func (r *Reactor) checkBounds(step time.Duration, spare bool) (wait time.Duration) {
	p := &r.watchdog
	crowd := 0
	for _, q := range r.queues {
		if q != nil && q.order.n > 0 {
			crowd++
		}
	}
	shared := max(crowd, p.busy) // a queue that became idle since the last tick also had a share of the wire
	p.busy = crowd
	wait, p.pace = never, never
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
		wait = min(wait, left)
		p.paceFor(q.peerLimit.Bound)
	}
	return wait
}

// paceFor makes ticks frequent enough for a Bound.
func (p *watchdog) paceFor(bound time.Duration) {
	if bound > 0 {
		p.pace = min(p.pace, max(bound/ticksPerBound, 1))
	}
}

// checkPeers runs one tick: it checks the bounds and sends the probes that are due, and sets the timer for the next
// tick. If called is true, watchdog.wake has queued this tick. Otherwise the timer has started it. In
// the state watchdogWaking, watchdog.call is queued and must not be queued a second time. So only a
// tick that watchdog.wake has queued ends this state.
func (r *Reactor) checkPeers(called bool) {
	p := &r.watchdog
	now := r.cfg.Now().Sub(r.timers.base)
	step := now - p.last
	stopped := step/lateFactor > p.interval && step-p.interval > lateBy
	if stopped {
		step = max(p.interval*lateFactor, p.interval+lateBy)
	}
	spare := stopped && !p.spared // ignore timeouts until the next tick: passes first poll the answers that have arrived
	p.spared = spare
	wait := time.Duration(never)
	if called || r.outstanding > 0 || p.busy > 0 { // otherwise no Bound is running, and a visit of all queues is saved
		wait = r.checkBounds(step, spare)
	}
	asked := r.sendProbes(now)
	if len(p.probes.order) > 0 {
		wait = min(wait, p.probes.order[0].at-now)
	}
	// A user that submits one request at a time often has no request outstanding when a tick runs. If
	// the state then became watchdogIdle, nearly every request would need a call of p.wake. So a tick
	// that p.wake has queued never sets watchdogIdle.
	busy := asked || called || r.outstanding > 0
	if busy {
		wait = min(wait, p.pace)
	}
	if p.state != watchdogWaking || called {
		switch {
		case p.limited == 0:
			p.state = watchdogOff
		case wait != never && (busy || p.pace == never):
			p.state = watchdogOn
		default:
			p.state = watchdogIdle // the next pass with outstanding sends calls p.wake
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
	r.Drain() // completions that are in the completion queues now came in time
	for i := 0; i < len(p.expired); i++ {
		p.expired[i].reportTimeout(now)
	}
	clear(p.expired)
	p.expired = p.expired[:0]
}
