package overhead

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
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

// smoke runs the command for a moment and returns its rows.
func smoke(t *testing.T, only string) []report.Row {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rows.json")
	var out, trouble strings.Builder
	if code := Main([]string{"-only", only, "-rounds", "1", "-ops", "2000", "-json", file}, &out, &trouble); code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, trouble.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows []report.Row
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !strings.Contains(out.String(), r.Figure) {
			t.Errorf("the table has no %q:\n%s", r.Figure, out.String())
		}
	}
	return rows
}

// Rule: every figure of the null device and of the software RNIC is measured, a time is
// more than nothing, and the loop in C has lists and signaling as ours had.
func TestEveryFigureIsMeasured(t *testing.T) {
	for _, r := range smoke(t, "^(null device|allocations|software RNIC)") {
		excused := false
		for _, reason := range notHere {
			excused = excused || strings.Contains(r.Why, reason)
		}
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

// Rule: what is asked for wrongly is refused with a word, help is help, and -list names
// figures that -only finds.
func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-only", "("}, {"-rounds", "0"}, {"-ops", "0"}, {"-nonsense"}, {"what"}} {
		var out, trouble strings.Builder
		if code := Main(args, &out, &trouble); code != 2 || trouble.Len() == 0 || out.Len() != 0 {
			t.Errorf("%q ended with %d, said %q", args, code, trouble.String())
		}
	}
	var out, help strings.Builder
	if code := Main([]string{"-h"}, &out, &help); code != 0 || !strings.Contains(help.String(), "usage: overhead") || !strings.Contains(help.String(), "-rounds") {
		t.Errorf("help ended with %d and said %q", code, help.String())
	}
	if code := Main([]string{"-list", "-only", "idle"}, &out, &help); code != 0 || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("-list ended with %d and printed %q", code, out.String())
	}
	help.Reset()
	if code := Main([]string{"-only", "no such figure"}, &out, &help); code != 1 || !strings.Contains(help.String(), "no figure matches") {
		t.Errorf("an unknown figure ended with %d and %q", code, help.String())
	}
}
