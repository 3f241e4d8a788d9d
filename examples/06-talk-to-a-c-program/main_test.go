package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/examples/internal/process"
	"github.com/verbena-rdma/verbena/internal/leak"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
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

// Rule: both sides exchange the agreed number of messages, of one packet or many.
func TestGame(t *testing.T) {
	for g, want := range map[game]string{
		{64, 1}:    "1 exchanges of 64 bytes with ",
		{10000, 7}: "7 exchanges of 10000 bytes with ",
		usual:      "1000 exchanges of 4096 bytes with ",
	} {
		var out bytes.Buffer
		if err := run(testContext(t), &out, g, "", ""); err != nil {
			t.Fatal(err)
		}
		with, ok := strings.CutPrefix(out.String(), want)
		if _, err := netip.ParseAddr(strings.TrimSpace(with)); !ok || err != nil {
			t.Errorf("printed %q, want %q and the device's address", &out, want)
		}
	}
}

// Rule: the server and the client are two processes. The server plays with one client after the
// other; one that does not speak the protocol is reported, and not served.
func TestTwoProcesses(t *testing.T) {
	server := process.Serve(t)
	stranger, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := server.Dial(), "1000 exchanges of 4096 bytes with "; !strings.HasPrefix(got, want) {
		t.Errorf("the client printed %q, want %q", got, want)
	}
	want := regexp.MustCompile("^connection from .*\n1000 exchanges of 4096 bytes with .*\n$")
	if got := server.Stop(); !want.MatchString(got) {
		t.Errorf("the server printed %q, want the stranger's error and a game", got)
	}
}

// Rule: both runtimes are on the device that the user has chosen.
func TestDeviceIsChosenFromOutside(t *testing.T) {
	t.Setenv(verbena.DeviceEnv, "soft:no-such-device")
	unknown := new(verbs.DeviceError)
	if err := run(testContext(t), io.Discard, usual, "", ""); !errors.As(err, &unknown) {
		t.Errorf("on a device that is not there: %v, want a DeviceError", err)
	}
}

// Rule: the error of a failed connect or listen names the argument for another address.
func TestAddressesInVain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := taken.Addr().String()
	if err := run(testContext(t), io.Discard, usual, "serve", at); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "serve takes") {
		t.Errorf("serving where somebody else does: %v", err)
	}
	taken.Close()
	if err := run(testContext(t), io.Discard, usual, "dial", at); !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "dial takes") {
		t.Errorf("connecting to nobody: %v", err)
	}
}

// Rule: a server that does not speak the protocol is detected, and nothing is left behind.
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
	err = run(testContext(t), io.Discard, usual, "dial", ln.Addr().String())
	if !errors.Is(err, bootstrap.ErrMalformed) {
		t.Errorf("a mail server: %v, want ErrMalformed", err)
	}
}

// Rule: a context that has ended ends the example, also a server without a client.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, io.Discard, usual, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
	if err := run(ctx, io.Discard, usual, "serve", "127.0.0.1:0"); err != nil {
		t.Errorf("serving with a cancelled context: %v", err)
	}
}
