package overhead

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// on makes a load on the software RNIC, in this process.
func on(t *testing.T, name string) load {
	t.Helper()
	l := must.Get(loads[name](machine{device: devSoft}))(t)
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Errorf("closing it: %v", err)
		}
	})
	return l
}

// Rule: a load does what it is told, no more and no less: as many work requests are
// posted as there are operations.
func TestLoadsDoAsManyAsTold(t *testing.T) {
	for _, name := range []string{"futures", "grouped", "together", "crowd-together", "callbacks", "sync", "crowd", "crowd-sync", "crowd-kept", "stamped", "stampcrowd", "futures64k"} {
		t.Run(name, func(t *testing.T) {
			l := on(t, name)
			for _, n := range []int{1, crowd - 1, 1000} {
				found := rounds.Values{}
				if err := l.round(n, found); err != nil {
					t.Fatal(err)
				}
				if found[vPosted] != float64(n) || found[vLists] < 1 || found[vPolled] < 1 {
					t.Errorf("%d operations: %v", n, found)
				}
				if s, ok := l.(*stamped); ok && (len(s.waited) != n || found[vP99] <= 0 || found[vP99] > found[vMost]) {
					t.Errorf("the way to the device of %d of %d operations was timed: %v", len(s.waited), n, found)
				}
			}
		})
	}
}

// Rule: a chain of callbacks whose connection has gone ends with an error, and does not
// wait for what nobody will start.
func TestChainEndsWithItsConnection(t *testing.T) {
	l := on(t, "callbacks").(*chain)
	if err := l.round(100, rounds.Values{}); err != nil {
		t.Fatal(err)
	}
	l.peers[0].Abort()
	var err error
	for i := 0; err == nil && i < 10_000; i++ {
		err = l.round(1000, rounds.Values{})
	}
	if err == nil {
		t.Error("no round failed after the peer had gone")
	}
}

// Rule: the probes beside a flood are timed, each as often as told, and the flood ends.
func TestFloodsEnd(t *testing.T) {
	for _, name := range []string{"flooded", "channels"} {
		f := on(t, name).(*flood)
		found := rounds.Values{}
		if err := f.round(20, found); err != nil {
			t.Fatal(err)
		}
		if len(f.took) != 20 || found[vP50] <= 0 || found[vMost] < found[vP999] || found[vPosted] == 0 {
			t.Errorf("%s: %d times, %v", name, len(f.took), found)
		}
	}
}

// Rule: percentiles are of the whole, and a sample of one is all of them.
func TestPercentiles(t *testing.T) {
	var s samples
	for d := time.Duration(1000); d > 0; d-- {
		s = append(s, d)
	}
	found := rounds.Values{}
	s.report(found)
	if found[vP50] != 501 || found[vP99] != 991 || found[vP999] != 1000 || found[vMost] != 1000 {
		t.Errorf("of 1 to 1000: %v", found)
	}
	one := rounds.Values{}
	samples{7}.report(one)
	if one[vP50] != 7 || one[vP999] != 7 || one[vMost] != 7 {
		t.Errorf("of 7 alone: %v", one)
	}
}

// loop starts the loop in C, where there is a compiler.
func loop(t *testing.T) *side.Child {
	t.Helper()
	libs, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := must.Get(buildLoop(t.Context(), t.TempDir(), libs))(t)
	c := must.Get(startLoop(t.Context(), program))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("it ended by %v", err)
		}
	})
	return c
}

// Rule: the loop in C posts as many as it is told, in lists as long, and has as many of
// them signaled, on average, whatever the numbers are; but for those that must be
// signaled so that there is room.
func TestLoopInCDoesAsTold(t *testing.T) {
	c := loop(t)
	const ops = 20_000
	for _, told := range []struct{ depth, list, period float64 }{
		{128, 128, 32}, {1, 1, 1}, {128, 1, 1}, {128, 60.5, 20.25}, {128, 8, 100}, {128, 1.5, 1.25}, {128, 117.3, 31.4}, {128, 16, 16},
	} {
		v := must.Get(c.Round(t.Context(), rounds.Values{vOps: ops, "depth": told.depth, "list": told.list, "period": told.period}))(t)
		near := func(name string, want float64) {
			if math.Abs(v[name]-want) > 0.02*want+1 {
				t.Errorf("told %+v: %s is %g, want %g", told, name, v[name], want)
			}
		}
		if v[vOps] != ops || v[vPosted] != ops {
			t.Errorf("told %+v: %v", told, v)
		}
		near(vLists, ops/told.list)
		near(vPolled, ops/told.period)
	}
	var cannot *side.CannotError
	if _, err := c.Round(t.Context(), rounds.Values{"nonsense": 1}); !errors.As(err, &cannot) || !strings.Contains(cannot.Why, "what is that") {
		t.Errorf("nonsense was answered by %v", err)
	}
}
