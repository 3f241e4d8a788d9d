package reactor

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// Policy is how a reactor waits while it is idle. It trades processor time for the latency of the
// next event. Under every policy waiting goroutines run passes themselves (as drivers).
type Policy uint8

const (
	// PolicyEconomy is the default. It uses no processor when idle: after Config.Spin empty passes
	// the completion queues are armed, the loop sleeps and drivers park.
	PolicyEconomy Policy = iota
	// PolicyThroughput lets the loop and drivers poll for a while (spin) before they arm and sleep.
	// How long they spin, the spin budget, adapts. It grows while completions come soon after the
	// loop has gone to sleep, and shrinks while the reactor is idle. It stays between an eighth and
	// 16 times the measured cost of arming and a wake-up. While the reactor spins, messages raise
	// no completion events. The policy needs two processors for each busy reactor.
	PolicyThroughput
	// PolicyLatency lets the loop spin always, and drivers until they have their result. The loop
	// has a thread of its own, pinned to a processor of the reactor's node where the system
	// supports that. The loop uses the whole processor, and each driver uses another one. At least
	// one of Go's processors (GOMAXPROCS) must remain without such a loop. A reactor whose loop
	// would take the last one gets PolicyThroughput.
	PolicyLatency

	policies // the number of policies
)

// String returns the policy's name.
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

// spinState is the state of a reactor's policy.
type spinState struct {
	policy Policy // the policy in effect
	budget *turn.Budget
	// savedEvents counts polls that found receives while the receive completion queue was not
	// armed; each saved an event. Written by the holder, read by the loop while it spins; publishes
	// nothing.
	savedEvents atomic.Uint64
	owns        bool // the loop has reserved a processor (ownProcessor), until Close
	// idlePass reports that the last pass found nothing. The field slice is how many polls execute
	// adds to one call of the device (IOBatch.Spin; loop_pass.go). It stays 0 if the policy does
	// not spin, or if the device is part of this process, where a call is cheap. Holder only.
	idlePass bool
	slice    int
	// untimedSlices is how many of the next slices are not timed. clockCost is how long one reading
	// of the clock takes; it is written before the first slice. Holder only.
	untimedSlices int
	clockCost     time.Duration
}

// owned counts the loops of the process that have reserved a processor. Written by ownProcessor
// and releaseProcessor; publishes nothing.
var owned atomic.Int64

// ownProcessor reserves one of Go's processors for a loop that always spins, and reports whether it
// did. It refuses to reserve the last one.
func ownProcessor() bool {
	if owned.Add(1) < int64(runtime.GOMAXPROCS(0)) {
		return true
	}
	owned.Add(-1)
	return false
}

// releaseProcessor gives the processor back. Close calls it after the loop has ended.
func (r *Reactor) releaseProcessor() {
	if r.owns {
		r.owns = false
		owned.Add(-1)
	}
}

// configureSpin sets the fields of the token's configuration that depend on the policy. The channel
// must not be attached to a poller yet, because Announces and WakeCost require that.
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

// clockRounds is how many times clockCost reads the clock; the fastest reading counts.
const clockRounds = 4

// clockCost measures how long it takes to read the clock.
func clockCost() (cost time.Duration) {
	for i := range clockRounds {
		began := time.Now()
		if took := time.Since(began); i == 0 || took < cost {
			cost = took
		}
	}
	return cost
}

// armRounds is how many times armCost arms; the fastest arming counts.
const armRounds = 8

// armCost measures how long the device takes to arm both completion queues and to poll them. They
// are empty, so no event follows. The reactor arms them again when it must.
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

// runLoop is the loop. If user code ends the loop's goroutine, runLoop starts another one; the
// turn has been given up before that (complete_attend.go).
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

// addSpinStats adds the policy's counters to s.
func (r *Reactor) addSpinStats(s *Stats) {
	t := r.tok.Stats()
	s.Spins, s.SpinsInVain, s.Returned = t.Spins.Load(), t.SpinsInVain.Load(), t.Returned.Load()
	if r.budget != nil {
		s.MaxSpin = r.budget.Time()
	}
}
