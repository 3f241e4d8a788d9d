package reactor

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// Policy says what a reactor does while nothing comes: what it costs a processor, and
// what the next thing that comes costs. Waiting goroutines drive under each.
type Policy uint8

const (
	// PolicyEconomy uses no processor when idle: after Config.Spin empty turns all is
	// armed, the loop sleeps and waiters park. The default.
	PolicyEconomy Policy = iota
	// PolicyThroughput spins, the loop and a driver, before it arms and sleeps, for
	// a budget that follows what a wake-up costs on this machine and device and
	// whether spinning found something lately; with a reactor that is idle for long it
	// is an eighth of a wake-up. While it spins no message costs an event. It wants
	// two processors for each reactor that is busy.
	PolicyThroughput
	// PolicyLatency has the loop spin always, on a thread of its own that is pinned to
	// a processor of the reactor's node where the system can do that, and drivers
	// until their result is there. It takes that processor wholly, and another for
	// each driver. All but one of the processors that Go uses (GOMAXPROCS) can be taken
	// so; a reactor that finds none left has PolicyThroughput.
	PolicyLatency

	policies // their number
)

// String names the policy.
func (p Policy) String() string {
	switch p {
	case PolicyEconomy:
		return "economy"
	case PolicyThroughput:
		return "throughput"
	case PolicyLatency:
		return "latency"
	}
	return "no policy"
}

// spinState is what a reactor keeps of its policy.
type spinState struct {
	policy Policy // as it is carried out
	budget *turn.Budget
	// savedEvents counts receives that were polled off a queue that was not armed, each of
	// which would have been an event. Written by the holder, read by the loop while
	// it spins; publishes nothing.
	savedEvents atomic.Uint64
	owns        bool // a processor, which is given back when the reactor is closed
	// idlePass says that the last turn found nothing, and slice for how many more polls
	// the device is asked then (see Turn.Spin); 0: it crosses nothing. Holder only.
	idlePass bool
	slice    int
	// untimedSlices is how many slices more are made without looking at the clock, and glance
	// what looking at it takes. Holder only; glance is written before there is one.
	untimedSlices int
	clockCost     time.Duration
}

// owned counts the loops of the process that have a processor to themselves: written by
// ownProcessor and disown; publishes nothing.
var owned atomic.Int64

// ownProcessor takes one of Go's processors for a loop that never lets go of it, if
// there is another left for everybody else.
func ownProcessor() bool {
	if owned.Add(1) < int64(runtime.GOMAXPROCS(0)) {
		return true
	}
	owned.Add(-1)
	return false
}

// releaseProcessor gives the processor back. Close, once the loop has ended.
func (r *Reactor) releaseProcessor() {
	if r.owns {
		r.owns = false
		owned.Add(-1)
	}
}

// configureSpin makes the token's configuration of the policy's. The channel is not in a poller
// yet.
func (r *Reactor) configureSpin(cfg *turn.Config) error {
	r.policy = r.cfg.Policy
	if r.cfg.Stepped {
		r.policy = PolicyEconomy
	}
	if r.policy == PolicyLatency {
		if r.owns = ownProcessor(); !r.owns {
			r.policy = PolicyThroughput
		}
	}
	if r.policy == PolicyEconomy {
		return nil
	}
	cfg.SavedEvents = r.savedEvents.Load
	if !sys.Announces(r.channel) {
		r.slice, r.clockCost = maxSlicePolls, clockCost()
	}
	if r.policy == PolicyLatency {
		cfg.SpinMode, cfg.Pinned = turn.SpinAlways, true
		return nil
	}
	arm, err := r.armCost()
	if err != nil {
		return err
	}
	wake, err := sys.WakeCost(r.channel)
	if err != nil {
		return err
	}
	r.budget = turn.NewBudget(arm + wake)
	cfg.SpinMode, cfg.Budget = turn.SpinTimed, r.budget
	return nil
}

// clockRounds is how often the clock is looked at to see what that takes; the fastest
// counts.
const clockRounds = 4

// clockCost is what looking at the clock takes.
func clockCost() (cost time.Duration) {
	for i := range clockRounds {
		began := time.Now()
		if took := time.Since(began); i == 0 || took < cost {
			cost = took
		}
	}
	return cost
}

// armRounds is how often arming is tried to see what it costs; the fastest counts.
const armRounds = 8

// armCost is what arming both completion queues takes on this device. They are empty,
// so that no event comes of it, and armed when it returns: the first turn finds them so.
func (r *Reactor) armCost() (cost time.Duration, err error) {
	for i := range armRounds {
		t := verbs.IOBatch{Arms: []verbs.ArmGroup{{CQ: r.sendCQ.cq}, {CQ: r.recvCQ.cq}}, Polls: r.polls}
		began := time.Now()
		if err = r.ctx.Execute(&t); err != nil {
			return 0, err
		}
		if took := time.Since(began); i == 0 || took < cost {
			cost = took
		}
	}
	return cost, nil
}

// runLoop is the reactor's goroutine. If user code on it ends it, another goes on: whoever
// called that code has given the turn up (complete_attend.go).
func (r *Reactor) runLoop() {
	returned := false
	defer func() {
		if returned {
			close(r.done)
		} else {
			go r.runLoop()
		}
	}()
	if r.policy == PolicyLatency {
		defer pinned(r.cfg.Node)()
	}
	r.tok.Loop()
	returned = true
}

// addSpinStats adds what the policy did to s.
func (r *Reactor) addSpinStats(s *Stats) {
	t := r.tok.Stats()
	s.Spins, s.SpinsInVain, s.Returned = t.Spins.Load(), t.SpinsInVain.Load(), t.Returned.Load()
	if r.budget != nil {
		s.MaxSpin = r.budget.Time()
	}
}
