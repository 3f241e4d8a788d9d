package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/examples/internal/process"
	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestMain(m *testing.M) {
	process.Main(main, leak.Take)
	leak.Main(m)
}

// What the ends print.
const (
	sent  = "a writes 29 bytes and sends 21\n"
	found = "b received \"look into your memory\" and finds \"written without the help of b\"\n"
)

func run(ctx context.Context) (string, error) {
	var out bytes.Buffer
	err := ends.TCP{Serve: b, Dial: a}.Run(ctx, &out)
	return out.String(), err
}

// Rule: written data is there when the message after it has arrived, and nothing is left behind.
func TestTalk(t *testing.T) {
	if out, err := run(t.Context()); err != nil || out != sent+found {
		t.Errorf("printed %q, want %q: %v", out, sent+found, err)
	}
}

// Rule: the server and the client are two processes. The server serves one client after the other,
// until it is interrupted.
func TestTwoProcesses(t *testing.T) {
	server := process.Serve(t)
	for range 2 {
		if got := server.Dial(); got != sent {
			t.Errorf("the client printed %q, want %q", got, sent)
		}
	}
	if got := server.Stop(); got != found+found {
		t.Errorf("the server printed %q, want %q twice", got, found)
	}
}

// Rule: the example uses the named device, or the error lists the existing ones.
func TestDevice(t *testing.T) {
	t.Setenv("VERBENA_DEVICE", "soft:soft3")
	if _, err := run(t.Context()); err != nil {
		t.Error(err)
	}
	t.Setenv("VERBENA_DEVICE", "soft:none")
	if _, err := run(t.Context()); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Errorf("on a device that is not there: %v, want ErrUnknownDevice", err)
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}
