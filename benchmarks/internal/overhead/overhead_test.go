package overhead

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/internal/leak"
)

// TestMain has this test binary be a worker, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == WorkerArg {
		os.Exit(Worker(os.Args[2:]))
	}
	leak.Main(m)
}

// notHere are the reasons for which a figure of the null device may be missing: no
// compiler, a build without cgo, a system that does not count a process's time.
var notHere = []string{"no C compiler", "built without cgo", "unsupported operation"}

// Rule: every figure of the null device and of the software RNIC is measured, a time is
// more than nothing, and the loop in C has lists and signaling as ours had.
func TestEveryFigureIsMeasured(t *testing.T) {
	for _, r := range suite.Smoke(t, Main, "-only", "^(null device|allocations|software RNIC)", "-rounds", "1", "-ops", "2000") {
		excused := slices.ContainsFunc(notHere, func(reason string) bool { return strings.Contains(r.Why, reason) })
		switch {
		case excused && (runtime.GOOS != "linux" || strings.Contains(r.Why, notHere[0]) || strings.Contains(r.Why, notHere[1])):
			t.Logf("%s: %s", r.Figure, r.Why)
		case r.Why != "" || r.Ours == nil:
			t.Errorf("%s: not measured: %s", r.Figure, r.Why)
		case strings.Contains(r.Note, "NOT ALIKE"):
			t.Errorf("%s: %s", r.Figure, r.Note)
		// Two thousand operations may be less than the system's clock of CPU time tells.
		case *r.Ours <= 0 && !strings.Contains(r.Figure, "allocations") && !strings.Contains(r.Figure, "CPU"):
			t.Errorf("%s is %v", r.Figure, *r.Ours)
		}
	}
}

// Rule: -list names the figures that -only finds.
func TestList(t *testing.T) {
	var out, trouble strings.Builder
	if code := Main([]string{"-list", "-only", "idle"}, &out, &trouble); code != 0 || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("-list ended with %d and printed %q", code, out.String())
	}
}
