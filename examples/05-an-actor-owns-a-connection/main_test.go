package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/examples/internal/process"
	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) {
	process.Main(main, leak.Take)
	leak.Main(m)
}

// printed is the output of a client, for the numbers before and after each of its additions.
const printed = "counter 1 was %d, is %d\ncounter 1 was %d, is %d\ncounter 1 was %d, is %d\n" +
	"keeper: the connection has ended: runtime: connection closed by the peer\n" +
	"telling it once more: actor: stopped\n"

// Rule: the answers come from the peer's memory; when the peer closes the actor is notified,
// ends, and reports that.
func TestCountsUntilThePeerGoes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := example.Run(ctx, &out); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(printed, 0, 3, 3, 7, 7, 12); out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}

// Rule: the server and the client are two processes, and the counters outlive a client.
func TestTwoProcesses(t *testing.T) {
	server := process.Serve(t)
	for _, want := range []string{fmt.Sprintf(printed, 0, 3, 3, 7, 7, 12), fmt.Sprintf(printed, 12, 15, 15, 19, 19, 24)} {
		if got := server.Dial(); got != want {
			t.Errorf("the client printed %q, want %q", got, want)
		}
	}
	if got := server.Stop(); got != "" {
		t.Errorf("the server printed %q", got)
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
