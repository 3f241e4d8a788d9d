package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Rule: the answers come from the peer's memory; when the peer closes the actor is notified,
// ends, and reports that.
func TestCountsUntilThePeerGoes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, &out, 1, 10, 100); err != nil {
		t.Fatal(err)
	}
	want := "counter 1 was 0, is 1\ncounter 1 was 1, is 11\ncounter 1 was 11, is 111\n" +
		"keeper: the connection has ended: runtime: connection closed by the peer\n" +
		"telling it once more: actor: stopped\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, &bytes.Buffer{}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}
