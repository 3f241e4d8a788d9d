package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Rule: when the immediate arrives, all earlier data is there; and operations that the descriptor
// does not permit are refused.
func TestWrites(t *testing.T) {
	for _, texts := range [][]string{{"one"}, {"one, ", "two, ", "three"}, {strings.Repeat("x", boardSize-1), "y"}} {
		var out bytes.Buffer
		if err := run(testContext(t), &out, texts...); err != nil {
			t.Fatal(err)
		}
		want := "client: may write 256 bytes of the server\n" +
			"client: reading is refused: runtime: remote memory does not permit this: it needs REMOTE_READ, the descriptor grants REMOTE_WRITE\n" +
			"server: told 42, the board says \"" + strings.Join(texts, "") + "\"\n"
		if out.String() != want {
			t.Errorf("printed %q, want %q", &out, want)
		}
	}
}

// Rule: a text that does not fit is refused before it is written, and nothing is left behind.
func TestTextThatDoesNotFit(t *testing.T) {
	err := run(testContext(t), &bytes.Buffer{}, strings.Repeat("x", boardSize), "y")
	if err == nil || !strings.Contains(err.Error(), "0 bytes are left") {
		t.Errorf("one byte more than the board has: %v", err)
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, &bytes.Buffer{}, "one"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}
