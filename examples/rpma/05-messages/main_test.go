package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/examples/internal/process"
	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) {
	process.Main(main, leak.Take)
	leak.Main(m)
}

// What the ends print.
const (
	atServer = "server: received 0\n" +
		"server: received 1\n" +
		"server: received 2\n"
	atClient = "client: sent 0, received 1\n" +
		"client: sent 1, received 2\n" +
		"client: sent 2, received 3\n"
)

// lines returns the lines of a text in a fixed order: the two ends print at the same time.
func lines(text string) []string {
	return slices.Sorted(strings.Lines(text))
}

// Rule: each number is answered with its successor, and nothing is left behind.
func TestBothEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := example.Run(ctx, &out); err != nil || !slices.Equal(lines(out.String()), lines(atServer+atClient)) {
		t.Errorf("printed %q, want %q: %v", &out, atServer+atClient, err)
	}
}

// Rule: the server and the client are two processes. The server serves one client after the other.
func TestTwoProcesses(t *testing.T) {
	server := process.Serve(t)
	for range 2 {
		if got := server.Dial(); got != atClient {
			t.Errorf("the client printed %q, want %q", got, atClient)
		}
	}
	if got := server.Stop(); !slices.Equal(lines(got), lines(atServer+atServer)) {
		t.Errorf("the server printed %q, want %q twice", got, atServer)
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := example.Run(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}
