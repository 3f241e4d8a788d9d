package scale

import (
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

// notHere are the reasons for which a figure may be missing.
var notHere = []string{"no C compiler", "built without cgo", "unsupported operation", "does not report"}

// Rule: with forty connections all figures are measured and positive, and a connection has memory
// on the heap and off it.
func TestEveryFigureIsMeasured(t *testing.T) {
	// 40 connections with the default options do not fit the initial size of a reactor's
	// completion queues.
	for _, r := range smoke.Run(t, Main, "-most", "40", "-rounds", "1", "-ops", "500") {
		excused := slices.ContainsFunc(notHere, func(reason string) bool { return strings.Contains(r.Why, reason) })
		switch {
		case excused:
			t.Logf("%s: %s", r.Figure, r.Why)
		case r.Why != "" || r.Ours == nil:
			t.Errorf("%s: not measured: %s", r.Figure, r.Why)
		// Resident memory and CPU time of so few may be below the system's resolution.
		case *r.Ours <= 0 && !strings.Contains(r.Figure, "CPU") && !strings.Contains(r.Figure, "resident"):
			t.Errorf("%s is %v", r.Figure, *r.Ours)
		}
	}
}

// Rule: zero connections are refused, and -list prints the figures that -only selects.
func TestFlags(t *testing.T) {
	var out, trouble strings.Builder
	if code := Main([]string{"-most", "0"}, &out, &trouble); code != 2 || !strings.Contains(trouble.String(), "up to 0 connections") {
		t.Errorf("no connections ended with %d and %q", code, trouble.String())
	}
	if code := Main([]string{"-list", "-only", "software.*10000 idle"}, &out, &trouble); code != 0 || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("-list ended with %d and printed %q", code, out.String())
	}
}
