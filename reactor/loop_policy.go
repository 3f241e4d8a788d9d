package reactor

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// Policy selects how a reactor waits while it is idle. The lower the latency of a policy, the more
// processor time it uses. Under every policy a waiting goroutine may run passes itself, as a driver.
type Policy uint8

const (
	// PolicyEconomy is the default. An idle reactor uses no processor: after Config.Spin empty
	// passes the completion queues are armed, the loop sleeps and drivers park.
	PolicyEconomy Policy = iota
	// PolicyThroughput lets the loop and drivers poll for a while (spin) before they arm and sleep.
	// The time for which they spin is the spin budget. The budget doubles after a short sleep of
	// the loop, and is halved after a long sleep. The budget stays between 1/8 and 16 times the
	// measured cost of arming and one wake-up. A spinning loop saves the cost of completion events,
	// because it does not arm. Each busy reactor needs two processors: one for the loop, and one for
	// the goroutines that use the reactor.
	PolicyThroughput
	// PolicyLatency lets the loop spin always, and lets a driver spin until it has its result. The
	// loop has its own thread, pinned to a processor of the reactor's node if the system supports
	// pinning. The loop uses this whole processor, and each driver uses another processor. One of
	// Go's processors (GOMAXPROCS) must remain free of such loops: a reactor whose loop would take
	// the last processor gets PolicyThroughput instead.
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
	// armed. Each such poll saved an event. The holder writes savedEvents. The loop reads it while the
	// loop spins. It publishes no other data.
	savedEvents atomic.Uint64
	owns        bool // the loop has reserved a processor (ownProcessor), until Close

	// Only the holder uses the fields below.
	idlePass bool // the last pass did nothing
	// slice is the value of IOBatch.Spin in a call that spins (loop_pass.go). It is 0 if the policy
	// does not spin. It is also 0 if the device is a part of this process, because a call of such a
	// device is cheap.
	slice         int
	untimedSlices int           // how many of the next slices are not timed
	clockCost     time.Duration // the cost of reading the clock; written before the first slice
}

// owned counts the loops of the process that have reserved a processor. Only ownProcessor and
// releaseProcessor write and read it. It publishes no other data.
var owned atomic.Int64

// ownProcessor reserves one of Go's processors (GOMAXPROCS) for a loop that always spins, and reports
// whether it did. It does not reserve the last processor.
func ownProcessor() bool {
	if owned.Add(1) < int64(runtime.GOMAXPROCS(0)) {
		return true
	}
	owned.Add(-1)
	return false
}

// releaseProcessor undoes ownProcessor. Close calls it after the loop has ended.
func (r *Reactor) releaseProcessor() {
	if r.owns {
		r.owns = false
		owned.Add(-1)
	}
}

// configureSpin sets the fields of the token's configuration that depend on the policy. The caller
// must not have attached r.channel to a poller, because sys.Announces and sys.WakeCost need an
// unattached channel.
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

// clockRounds is how many times clockCost measures; the result is the smallest measurement.
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

// armRounds is how many times armCost measures; the result is the smallest measurement.
const armRounds = 8

// armCost measures how long the device takes to arm the first two completion queues and to poll them. No
// event follows, because the reactor has no queue pairs yet. The fields cqState.armed stay false, so
// the reactor arms the queues again when it needs events.
func (r *Reactor) armCost() (cost time.Duration, err error) {
	for i := range armRounds {
		t := verbs.IOBatch{Arms: []verbs.ArmGroup{{CQ: r.sendCQs[0].cq}, {CQ: r.recvCQs[0].cq}}, Polls: r.polls}
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

// runLoop runs the loop. If user code ends the loop's goroutine by runtime.Goexit, runLoop starts
// another goroutine. By then the ended goroutine has given up the turn (complete_attend.go).
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

// addSpinStats stores the counters of spinning in s.
func (r *Reactor) addSpinStats(s *Stats) {
	t := r.tok.Stats()
	s.Spins, s.SpinsInVain, s.Returned = t.Spins.Load(), t.SpinsInVain.Load(), t.Returned.Load()
	if r.budget != nil {
		s.MaxSpin = r.budget.Time()
	}
}
