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

// Rule: when the immediate arrives, all earlier data is there; and operations that the descriptor
// does not permit are refused.
func TestWrites(t *testing.T) {
	for _, texts := range [][]string{{"one"}, {"one, ", "two, ", "three"}, {strings.Repeat("x", boardSize-1), "y"}} {
		var out bytes.Buffer
		if err := example.Run(testContext(t), &out, texts...); err != nil {
			t.Fatal(err)
		}
		want := "client: may write 256 bytes of the server\n" +
			"client: reading is refused: runtime: remote memory does not permit this: it needs REMOTE_READ, the descriptor grants REMOTE_WRITE\n" +
			"server: told 42, the board says \"" + strings.Join(texts, "") + "\"\n" +
			"client: the server has read \"" + strings.Join(texts, "") + "\"\n"
		if out.String() != want {
			t.Errorf("printed %q, want %q", &out, want)
		}
	}
}

// Rule: the server and the client are two processes, and each client has a board of its own.
func TestTwoProcesses(t *testing.T) {
	server, printed := process.Serve(t), ""
	for _, texts := range [][]string{{"a long first text"}, {"short, ", "and two"}} {
		text := strings.Join(texts, "")
		printed += "server: told 42, the board says \"" + text + "\"\n"
		want := "client: the server has read \"" + text + "\"\n"
		if got := server.Dial(texts...); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 3 {
			t.Errorf("the client printed %q, want 3 lines, the last %q", got, want)
		}
	}
	if got := server.Stop(); got != printed {
		t.Errorf("the server printed %q, want %q", got, printed)
	}
}

// Rule: a text that does not fit is refused before it is written, and nothing is left behind.
func TestTextThatDoesNotFit(t *testing.T) {
	err := example.Run(testContext(t), &bytes.Buffer{}, strings.Repeat("x", boardSize), "y")
	if err == nil || !strings.Contains(err.Error(), "0 bytes are left") {
		t.Errorf("one byte more than the board has: %v", err)
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := example.Run(ctx, &bytes.Buffer{}, "one"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}
