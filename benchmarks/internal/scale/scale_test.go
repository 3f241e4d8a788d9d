package scale

import (
	"os"
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

// notHere are the reasons for which a figure may be missing.
var notHere = []string{"no C compiler", "built without cgo", "unsupported operation", "does not tell"}

// Rule: with forty connections every figure is measured and more than nothing, and a
// connection is not free: it has memory on the heap and off it.
func TestEveryFigureIsMeasured(t *testing.T) {
	// 40 connections with the default options do not fit the completion queues that a
	// reactor begins with.
	for _, r := range suite.Smoke(t, Main, "-most", "40", "-rounds", "1", "-ops", "500") {
		excused := slices.ContainsFunc(notHere, func(reason string) bool { return strings.Contains(r.Why, reason) })
		switch {
		case excused:
			t.Logf("%s: %s", r.Figure, r.Why)
		case r.Why != "" || r.Ours == nil:
			t.Errorf("%s: not measured: %s", r.Figure, r.Why)
		// What is resident, and CPU time, of so little may be less than the system tells.
		case *r.Ours <= 0 && !strings.Contains(r.Figure, "CPU") && !strings.Contains(r.Figure, "resident"):
			t.Errorf("%s is %v", r.Figure, *r.Ours)
		}
	}
}

// Rule: no connections are refused, and -list names the figures that -only finds.
func TestFlags(t *testing.T) {
	var out, trouble strings.Builder
	if code := Main([]string{"-most", "0"}, &out, &trouble); code != 2 || !strings.Contains(trouble.String(), "up to 0 connections") {
		t.Errorf("no connections ended with %d and %q", code, trouble.String())
	}
	if code := Main([]string{"-list", "-only", "software.*10000 idle"}, &out, &trouble); code != 0 || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("-list ended with %d and printed %q", code, out.String())
	}
}
