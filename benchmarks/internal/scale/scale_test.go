package scale

import (
	"encoding/json"
	"os"
	"path/filepath"
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

// notHere are the reasons for which a figure may be missing.
var notHere = []string{"no C compiler", "built without cgo", "unsupported operation", "does not tell"}

// Rule: with forty connections every figure is measured and more than nothing, and a
// connection is not free: it has memory on the heap and off it.
func TestEveryFigureIsMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	var out, trouble strings.Builder
	// 40 connections with the default options do not fit the completion queues that a
	// reactor begins with.
	if code := Main([]string{"-most", "40", "-rounds", "1", "-ops", "500", "-json", file}, &out, &trouble); code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, trouble.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows []report.Row
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) == 0 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, r := range rows {
		if !strings.Contains(out.String(), r.Figure) {
			t.Errorf("the table has no %q:\n%s", r.Figure, out.String())
		}
		excused := false
		for _, reason := range notHere {
			excused = excused || strings.Contains(r.Why, reason)
		}
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

// Rule: what is asked for wrongly is refused with a word, help is help, and -list names
// figures that -only finds.
func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-only", "("}, {"-rounds", "0"}, {"-ops", "0"}, {"-most", "0"}, {"-nonsense"}, {"what"}} {
		var out, trouble strings.Builder
		if code := Main(args, &out, &trouble); code != 2 || trouble.Len() == 0 || out.Len() != 0 {
			t.Errorf("%q ended with %d, said %q", args, code, trouble.String())
		}
	}
	var out, help strings.Builder
	if code := Main([]string{"-h"}, &out, &help); code != 0 || !strings.Contains(help.String(), "usage: scale") {
		t.Errorf("help ended with %d and said %q", code, help.String())
	}
	if code := Main([]string{"-list", "-only", "software.*10000 idle"}, &out, &help); code != 0 || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("-list ended with %d and printed %q", code, out.String())
	}
	help.Reset()
	if code := Main([]string{"-only", "no such figure"}, &out, &help); code != 1 || !strings.Contains(help.String(), "no figure matches") {
		t.Errorf("an unknown figure ended with %d and %q", code, help.String())
	}
}
