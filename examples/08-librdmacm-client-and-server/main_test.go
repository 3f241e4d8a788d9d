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
	atServer = "received \"hello, server\"\n"
	atClient = "received \"hello, client\"\n"
)

func run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := ends.Own{Serve: server, Dial: client}.Run(ctx, &out, args...)
	return out.String(), err
}

// Rule: each end receives the other's message, and nothing is left behind.
func TestTalk(t *testing.T) {
	if out, err := run(t.Context()); err != nil || out != atServer+atClient {
		t.Errorf("printed %q, want %q: %v", out, atServer+atClient, err)
	}
}

// Rule: the server and the client are two processes. The server serves one client after the other,
// until it is interrupted.
func TestTwoProcesses(t *testing.T) {
	server := process.Serve(t)
	for range 2 {
		if got := server.Dial(); got != atClient {
			t.Errorf("the client printed %q, want %q", got, atClient)
		}
	}
	if got := server.Stop(); got != atServer+atServer {
		t.Errorf("the server printed %q, want %q twice", got, atServer)
	}
}

// Rule: a device that is missing, and an address that is none, are errors of both ends.
func TestUseless(t *testing.T) {
	if _, err := run(t.Context(), "dial", "nowhere"); err == nil {
		t.Error("an address without a port was dialed")
	}
	t.Setenv("VERBENA_DEVICE", "soft:none")
	for _, args := range [][]string{nil, {"serve"}, {"dial", "127.0.0.1:7471"}} {
		if _, err := run(t.Context(), args...); !errors.Is(err, verbs.ErrUnknownDevice) {
			t.Errorf("%q on a device that is not there: %v, want ErrUnknownDevice", args, err)
		}
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
