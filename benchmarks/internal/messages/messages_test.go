package messages

import (
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/smoke"
	"github.com/verbena-rdma/verbena/internal/leak"
)

// TestMain makes this test binary a worker, like the command.
func TestMain(m *testing.M) {
	smoke.Worker(WorkerArg, Worker)
	leak.Main(m)
}

// Rule: every figure is measured, and is positive unless it is a number of allocations.
func TestEveryFigureIsMeasured(t *testing.T) {
	for _, r := range smoke.Run(t, Main, "-rounds", "1", "-ops", "2000") {
		switch {
		case r.Why != "" || r.Ours == nil:
			t.Errorf("%s: not measured: %s", r.Figure, r.Why)
		// The CPU time of so few may be below the system's resolution.
		case *r.Ours <= 0 && !strings.Contains(r.Figure, "CPU") && !strings.Contains(r.Figure, "allocations"):
			t.Errorf("%s is %v, want more than 0", r.Figure, *r.Ours)
		}
	}
}

// Rule: a load that does not exist is refused.
func TestUnknownLoad(t *testing.T) {
	if l, err := worker().New("none"); err == nil {
		t.Errorf("the worker made a load that does not exist: %v", l)
	}
}
