package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/examples/internal/process"
	"github.com/verbena-rdma/verbena/internal/leak"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/plog"
)

func TestMain(m *testing.M) {
	process.Main(main, leak.Take)
	leak.Main(m)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// logFile gives the test a log of its own. Where the device or the system cannot make a file persistent,
// it skips the test.
func logFile(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv(fileVar, path)
	rt, err := verbena.Open(verbena.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := rt.NewFileRegion(path, logSize, plog.Access)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skip("this build cannot map files; that it says so was checked")
	case os.Getenv("VERBENA_DEVICE") != "" && errors.Is(err, verbena.ErrInvalid) && strings.Contains(err.Error(), "persistent memory"):
		err = nil
		defer t.Skip("this device makes only persistent memory persistent; that it says so was checked")
	case err == nil:
		err = r.Close()
	}
	if err := errors.Join(err, rt.Close(testContext(t))); err != nil {
		t.Fatal(err)
	}
}

// Rule: each run finds the records of the runs before, and appends behind them.
func TestRecordsStay(t *testing.T) {
	logFile(t)
	before, at := "", []string{"0", "1", "3"}
	for i, text := range []string{"first", strings.Repeat("second", 10), "third"} {
		var out bytes.Buffer
		if err := example.Run(testContext(t), &out, text); err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(out.String(), "\n")
		want := before + "client: the log has everything before " + at[i] + "\nclient: persistent at " + at[i] + ": " + text + "\n"
		if !strings.HasPrefix(head, "server: the log is on a f") || rest != want {
			t.Errorf("run %d printed %q and %q, want %q", i, head, rest, want)
		}
		before += "server: at " + at[i] + ": " + text + "\n"
	}
}

// Rule: the server and the client are two processes, and several clients append one after the other.
func TestTwoProcesses(t *testing.T) {
	logFile(t)
	server := process.Serve(t)
	if got := server.Dial("one", "two"); !strings.HasSuffix(got, "client: persistent at 1: two\n") {
		t.Errorf("the first client printed %q", got)
	}
	if got := server.Dial("three"); !strings.HasSuffix(got, "client: persistent at 2: three\n") {
		t.Errorf("the second client printed %q", got)
	}
	if got := server.Stop(); !strings.HasSuffix(got, "server: at 0: one\nserver: at 1: two\n") {
		t.Errorf("the server printed %q", got)
	}
}
