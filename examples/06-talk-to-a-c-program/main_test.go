package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

func TestMain(m *testing.M) { leak.Main(m) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Rule: both sides exchange as many messages as they agreed on, one packet or many.
func TestGame(t *testing.T) {
	for g, want := range map[game]string{
		{64, 1}:    "1 exchanges of 64 bytes with 127.0.0.2\n",
		{10000, 7}: "7 exchanges of 10000 bytes with 127.0.0.2\n",
		usual:      "1000 exchanges of 4096 bytes with 127.0.0.2\n",
	} {
		var out bytes.Buffer
		if err := run(testContext(t), &out, g, "", ""); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("printed %q, want %q", &out, want)
		}
	}
}

// Rule: a server that is none of the family is found out, and nothing is left
// behind.
func TestServerThatIsNone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(nc, "220 mail.example.com ESMTP, and what else such a server has to say\r\n")
		_, _ = io.Copy(io.Discard, nc)
		nc.Close()
	}()
	err = run(testContext(t), io.Discard, usual, "", ln.Addr().String())
	if !errors.Is(err, bootstrap.ErrMalformed) {
		t.Errorf("a mail server: %v, want ErrMalformed", err)
	}
}

// Rule: a context that has ended ends everything, also a server that nobody has
// come to.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, io.Discard, usual, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
	if err := run(ctx, io.Discard, usual, "127.0.0.1:0", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("serving with a cancelled context: %v, want net.ErrClosed", err)
	}
}
