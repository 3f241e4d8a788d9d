// Package smoke runs a benchmark suite for a moment. For tests only.
package smoke

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/internal/must"
)

// Worker makes this process a side, like the command, if its first argument is arg: it calls worker with the rest,
// and exits with its code. Otherwise it does nothing. Call it in TestMain.
func Worker(arg string, worker func(args []string) int) {
	if len(os.Args) > 1 && os.Args[1] == arg {
		os.Exit(worker(os.Args[2:]))
	}
}

// T is the used part of *testing.T.
type T interface {
	must.T
	TempDir() string
}

// Run runs a suite's command and returns its rows. It blocks until the command has ended. It
// ends the test if that fails, or if the table lacks a row. Call it on the test's goroutine.
func Run(t T, main func(args []string, stdout, stderr io.Writer) int, args ...string) []report.Row {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rows.json")
	var out, trouble strings.Builder
	if code := main(append(args, "-json", file), &out, &trouble); code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, trouble.String())
	}
	var rows []report.Row
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(file))(t), &rows))
	for _, r := range rows {
		if !strings.Contains(out.String(), r.Figure) {
			t.Fatalf("the table has no %q:\n%s", r.Figure, out.String())
		}
	}
	return rows
}
