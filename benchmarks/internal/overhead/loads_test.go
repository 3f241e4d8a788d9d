package overhead

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// on makes a load on the software RNIC, in this process.
func on(t *testing.T, name string) suite.Load {
	t.Helper()
	l := must.Get(loads[name](bed.Place{Device: bed.Soft}))(t)
	t.Cleanup(func() { must.Do(t, l.Close()) })
	return l
}

// Rule: a load performs exactly the requested number of operations: as many work requests are
// posted.
func TestLoadsDoAsManyAsTold(t *testing.T) {
	for _, name := range []string{"futures", "grouped", "together", "crowd-together", "callbacks", "sync", "crowd", "crowd-sync", "crowd-kept", "stamped", "stampcrowd", "futures64k"} {
		t.Run(name, func(t *testing.T) {
			l := on(t, name)
			for _, n := range []int{1, crowd - 1, 1000} {
				found := rounds.Values{}
				must.Do(t, l.Round(n, found))
				if found[suite.Posted] != float64(n) || found[suite.Lists] < 1 || found[suite.Polled] < 1 {
					t.Errorf("%d operations: %v", n, found)
				}
				if s, ok := l.(*stamped); ok && (len(s.waited) != n || found[suite.P99] <= 0 || found[suite.P99] > found[suite.Max]) {
					t.Errorf("the way to the device of %d of %d operations was timed: %v", len(s.waited), n, found)
				}
			}
		})
	}
}

// Rule: a chain of callbacks whose connection has failed ends with an error, and does not wait
// for operations that are never started.
func TestChainEndsWithItsConnection(t *testing.T) {
	l := on(t, "callbacks").(*chain)
	must.Do(t, l.Round(100, rounds.Values{}))
	gone := make(chan error, 1)
	go func() { gone <- bed.Close(l.There) }()
	var err error
	for i := 0; err == nil && i < 10_000; i++ {
		err = l.Round(1000, rounds.Values{})
	}
	if err == nil {
		t.Error("no round failed after the peer had gone")
	}
	must.Do(t, <-gone)
}

// Rule: the probes beside a flood are timed, each as often as requested, and the flood ends.
func TestFloodsEnd(t *testing.T) {
	for _, name := range []string{"flooded", "channels"} {
		f := on(t, name).(*flood)
		found := rounds.Values{}
		must.Do(t, f.Round(20, found))
		if len(f.took) != 20 || found[suite.P50] <= 0 || found[suite.Max] < found[suite.P999] || found[suite.Posted] == 0 {
			t.Errorf("%s: %d times, %v", name, len(f.took), found)
		}
	}
}

// loop starts the loop in C, where there is a compiler.
func loop(t *testing.T) *side.Child {
	t.Helper()
	libs, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	must.Do(t, err)
	program := must.Get(buildLoop(t.Context(), t.TempDir(), libs))(t)
	c := must.Get(startLoop(t.Context(), program))(t)
	t.Cleanup(func() { must.Do(t, c.Close()) })
	return c
}

// Rule: the loop in C posts the requested number, in lists of the requested length, with the
// requested signaling, on average, whatever the numbers are; except for those that must be
// signaled to make room.
func TestLoopInCDoesAsTold(t *testing.T) {
	c := loop(t)
	const ops = 20_000
	for _, told := range []struct{ depth, list, period float64 }{
		{128, 128, 32}, {1, 1, 1}, {128, 1, 1}, {128, 60.5, 20.25}, {128, 8, 100}, {128, 1.5, 1.25}, {128, 117.3, 31.4}, {128, 16, 16},
	} {
		v := must.Get(c.Round(t.Context(), rounds.Values{suite.Ops: ops, "depth": told.depth, "list": told.list, "period": told.period}))(t)
		near := func(name string, want float64) {
			if math.Abs(v[name]-want) > 0.02*want+1 {
				t.Errorf("told %+v: %s is %g, want %g", told, name, v[name], want)
			}
		}
		if v[suite.Ops] != ops || v[suite.Posted] != ops {
			t.Errorf("told %+v: %v", told, v)
		}
		near(suite.Lists, ops/told.list)
		near(suite.Polled, ops/told.period)
	}
	var cannot *side.CannotError
	if _, err := c.Round(t.Context(), rounds.Values{"nonsense": 1}); !errors.As(err, &cannot) || !strings.Contains(cannot.Why, "what is that") {
		t.Errorf("nonsense was answered by %v", err)
	}
}
