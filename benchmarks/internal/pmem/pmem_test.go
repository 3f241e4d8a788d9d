package pmem

import (
	"runtime"
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

// Rule: all figures of the file are measured, and times are in order.
func TestEveryFigureOfTheFileIsMeasured(t *testing.T) {
	var median float64
	for _, r := range smoke.Run(t, Main, "-only", "^file", "-rounds", "1", "-ops", "20", "-dir", t.TempDir()) {
		switch {
		case runtime.GOOS != "linux" && strings.Contains(r.Why, "unsupported operation"):
			t.Logf("%s: %s", r.Figure, r.Why)
		case r.Why != "" || r.Ours == nil:
			t.Errorf("%s: not measured: %s", r.Figure, r.Why)
		case *r.Ours <= 0 || *r.Baseline <= 0 || strings.Contains(r.Figure, "p99") && *r.Ours < median:
			t.Errorf("%s is %v beside %v, and the figure before it %v", r.Figure, *r.Ours, *r.Baseline, median)
		default:
			median = *r.Ours
		}
	}
}
