package nth

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
)

// Scenario is run once for each n.
type Scenario struct {
	// Provider makes a fresh provider for each run.
	Provider func() (verbs.Provider, error)
	// Run performs the scenario, from opening to closing, and returns all errors, joined. It may
	// run in any goroutine.
	Run func(p verbs.Provider) error
	// Errno, Busy, Removed and Then are those of the plan.
	Errno         syscall.Errno
	Busy, Removed bool
	Then          int
	// Step is the increment of n between runs; default 1: every call fails once.
	Step int
	// Watchdog is how long a run may take; default 30 s.
	Watchdog time.Duration
	// Gauges count other resources that a run must not leave behind.
	Gauges []leak.Gauge
}

// most bounds a scenario whose calls never end.
const most = 200_000

// Outcome is the sum of all runs.
type Outcome struct {
	Runs   int // with the fault applied
	Failed int // of those, the ones that the scenario reported
	Ops    map[string]int
}

// String returns one line, and the calls of a run without a fault.
func (o Outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs with a fault: %d reported, %d coped; calls of a run without:", o.Runs, o.Failed, o.Runs-o.Failed)
	for _, op := range slices.Sorted(maps.Keys(o.Ops)) {
		fmt.Fprintf(&b, " %s %d", op, o.Ops[op])
	}
	return b.String()
}

// Drive runs the scenario with the 1st, 2nd, 3rd… call failing until the fault is no longer
// applied. It fails the test on a hang, on a leak, on an error that does not name the call, and
// if the run without a fault fails. It blocks until all runs are done.
func Drive(t *testing.T, s Scenario) (o Outcome) {
	t.Helper()
	if s.Watchdog == 0 {
		s.Watchdog = 30 * time.Second
	}
	s.Step = max(s.Step, 1)
	for n := 1; n < most; n += s.Step {
		p, err := s.Provider()
		if err != nil {
			t.Fatalf("making a provider: %v", err)
		}
		before, err := leak.Take(s.Gauges...)
		if err != nil {
			t.Fatal(err)
		}
		plan := &Plan{N: n, Errno: s.Errno, Busy: s.Busy, Removed: s.Removed, Then: s.Then}
		err = watched(t, plan, s.Watchdog, func() error { return s.Run(Wrap(p, plan)) })
		struck := plan.injected()
		if left := before.Check(leakPatience); left != nil {
			t.Fatalf("%v failed, and left this behind (the scenario says %v):\n%v", struck, err, left)
		}
		named := func(c Call) bool { // a peer receives the name as text
			return Names(err, c.Op) || strings.Contains(err.Error(), c.Op)
		}
		switch {
		case len(struck) == 0 && err != nil:
			t.Fatalf("without a fault (%d calls) the scenario failed: %v", plan.Count(), err)
		case len(struck) == 0:
			o.Ops = plan.Ops()
			return o
		case err != nil && s.Removed && !errors.Is(err, verbs.ErrDeviceRemoved):
			t.Errorf("%v found the device removed; the error does not say so: %v", struck, err)
		case err != nil && !s.Removed && s.Then == 0 && !named(struck[0]): // a second failure may hide the first
			t.Errorf("%v failed; the error does not name it: %v", struck, err)
		case err != nil:
			o.Failed++
		}
		o.Runs++
	}
	t.Fatalf("the scenario makes more than %d calls", most)
	return o
}

// leakPatience is how long ending goroutines may take.
const leakPatience = 5 * time.Second

// watched runs fn and fails with a dump of all goroutines when it hangs. A hanging fn cannot be
// stopped, so the test ends there.
func watched(t *testing.T, plan *Plan, limit time.Duration, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		buf := make([]byte, 1<<20)
		t.Fatalf("hangs for %v after %d calls; made to fail: %v\n%s", limit, plan.Count(), plan.injected(), buf[:runtime.Stack(buf, true)])
		return nil
	}
}

// Names reports whether some error in err's tree is a *verbs.OpError about the C call op.
func Names(err error, op string) bool {
	if oe, ok := err.(*verbs.OpError); ok && oe.Op == op { //nolint:errorlint // every error of the tree is looked at itself
		return true
	}
	switch u := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(u.Unwrap(), func(e error) bool { return Names(e, op) })
	case interface{ Unwrap() error }:
		return u.Unwrap() != nil && Names(u.Unwrap(), op)
	}
	return false
}
