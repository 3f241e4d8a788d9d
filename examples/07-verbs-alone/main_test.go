package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Rule: written data is there when the message after it has arrived, and nothing is left behind.
func TestTalk(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, os.Getenv("VERBENA_DEVICE")); err != nil {
		t.Fatal(err)
	}
	if want := "b received \"look into your memory\" and finds \"written without the help of b\"\n"; out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}

// Rule: the example uses the named device, or the error lists the existing ones.
func TestDevice(t *testing.T) {
	if err := run(t.Context(), &bytes.Buffer{}, "soft:soft3"); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), &bytes.Buffer{}, "soft:none"); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Errorf("on a device that is not there: %v, want ErrUnknownDevice", err)
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, &bytes.Buffer{}, os.Getenv("VERBENA_DEVICE")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}
