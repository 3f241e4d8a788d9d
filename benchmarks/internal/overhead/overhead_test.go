package overhead

import (
	"runtime"
	"slices"
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

// notHere are the reasons for which a figure of the null device may be missing: no compiler, a
// build without cgo, a system without CPU time of processes.
var notHere = []string{"no C compiler", "built without cgo", "unsupported operation"}

// Rule: all figures of the null device and of the software RNIC are measured, times are positive,
// and the loop in C has the list length and signaling of ours.
func TestEveryFigureIsMeasured(t *testing.T) {
	for _, r := range smoke.Run(t, Main, "-only", "^(null device|allocations|software RNIC)", "-rounds", "1", "-ops", "2000") {
		excused := slices.ContainsFunc(notHere, func(reason string) bool { return strings.Contains(r.Why, reason) })
		switch {
		case excused && (runtime.GOOS != "linux" || strings.Contains(r.Why, notHere[0]) || strings.Contains(r.Why, notHere[1])):
			t.Logf("%s: %s", r.Figure, r.Why)
		case r.Why != "" || r.Ours == nil:
			t.Errorf("%s: not measured: %s", r.Figure, r.Why)
		case strings.Contains(r.Note, "NOT ALIKE"):
			t.Errorf("%s: %s", r.Figure, r.Note)
		// Two thousand operations may take less CPU time than the system's resolution.
		case *r.Ours <= 0 && !strings.Contains(r.Figure, "allocations") && !strings.Contains(r.Figure, "CPU"):
			t.Errorf("%s is %v", r.Figure, *r.Ours)
		}
	}
}

// Rule: -list prints the figures that -only selects.
func TestList(t *testing.T) {
	var out, trouble strings.Builder
	if code := Main([]string{"-list", "-only", "idle"}, &out, &trouble); code != 0 || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("-list ended with %d and printed %q", code, out.String())
	}
}
