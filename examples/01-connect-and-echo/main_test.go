package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/examples/internal/process"
	"github.com/verbena-rdma/verbena/internal/leak"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

func TestMain(m *testing.M) {
	process.Main(main, leak.Take)
	leak.Main(m)
}

// Rule: all lines come back unchanged, the empty one too.
func TestEcho(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	long := strings.Repeat("x", verbena.DefaultMessageSize)
	if err := run(ctx, &out, "", "", "one", "", long, "four"); err != nil {
		t.Fatal(err)
	}
	want := "connected over " + device(t) + ", messages of up to 16777216 bytes\n" +
		"said \"one\", heard \"one\"\n" +
		"said \"\", heard \"\"\n" +
		"said \"" + long + "\", heard \"" + long + "\"\n" +
		"said \"four\", heard \"four\"\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}

// Rule: the server and the client are two processes. The server serves one client after the other,
// until it is interrupted.
func TestTwoProcesses(t *testing.T) {
	want := "connected over " + device(t) + ", messages of up to 16777216 bytes\n" +
		"said \"hello\", heard \"hello\"\n" +
		"said \"is anybody there?\", heard \"is anybody there?\"\n" +
		"said \"goodbye\", heard \"goodbye\"\n"
	server := process.Serve(t)
	for range 2 {
		if got := server.Dial(); got != want {
			t.Errorf("the client printed %q, want %q", got, want)
		}
	}
	if got := server.Stop(); got != "" {
		t.Errorf("the server printed %q", got)
	}
}

// Rule: an unknown mode is refused.
func TestUnknownMode(t *testing.T) {
	code, stdout, stderr := process.Run(t, "listen")
	if code != 1 || stdout != "" || !strings.Contains(stderr, `"listen"`) {
		t.Errorf("exit code %d, %q on standard output, %q on standard error", code, stdout, stderr)
	}
}

// device returns the name of the device that the example runs on.
func device(t *testing.T) string {
	t.Helper()
	rt, err := verbena.Open(verbena.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if shut(rt, &err); err != nil {
			t.Error(err)
		}
	}()
	return rt.Device().Name
}

// Rule: a line that does not fit one message is refused, and nothing is left behind.
func TestLineThatIsTooLong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := run(ctx, &bytes.Buffer{}, "", "", strings.Repeat("x", verbena.DefaultMaxMessage+1))
	if !errors.Is(err, verbena.ErrTooLarge) {
		t.Errorf("a line longer than a message: %v, want ErrTooLarge", err)
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, &bytes.Buffer{}, "", "", "one"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}
