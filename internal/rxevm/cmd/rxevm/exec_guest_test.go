//go:build linux && verbena_rxevm

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rxevm"
)

// A program started by go test -exec runs in the machine as it would here: its folder and the
// repository are there, its exit code and its files come out, a signal goes in, and a kernel
// fault fails it. scripts/rxe.sh runs this.
func TestExecRunsInTheMachine(t *testing.T) {
	shares, err := own(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := rxevm.Boot(t.Context(), rxevm.Config{Shares: shares, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	socket, stop, err := m.Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		var k *rxevm.KernelError
		if err := m.Close(); !errors.As(err, &k) {
			t.Errorf("the machine closed with %v, want the fault that was provoked", err)
		}
	})
	sh := func(script string) (int, error) { return inside(socket, []string{"/bin/sh", "-c", script}) }

	t.Run("a test binary with coverage", func(t *testing.T) {
		dir := t.TempDir()
		bin, cover := filepath.Join(dir, "wire.test"), filepath.Join(dir, "cover.out")
		build := exec.Command("go", "test", "-c", "-cover", "-o", bin, "github.com/verbena-rdma/verbena/internal/rxevm/wire")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		code, err := inside(socket, []string{bin, "-test.run=Hostile", "-test.coverprofile=" + cover})
		if code != 0 || err != nil {
			t.Errorf("exit code %d, %v", code, err)
		}
		if text, err := os.ReadFile(cover); err != nil || !strings.Contains(string(text), "wire/frame.go") {
			t.Errorf("the profile has %d bytes, %v", len(text), err)
		}
	})
	t.Run("folder and environment", func(t *testing.T) {
		t.Setenv("VERBENA_X", "y")
		code, err := sh(`test -f rewrite.go && test -f ../../../../go.mod && test "$VERBENA_X" = y && ! touch here 2>/dev/null &&
			test "$VERBENA_TEST_DEVICES" = rxe0,rxe1`)
		if code != 0 || err != nil {
			t.Errorf("exit code %d, %v", code, err)
		}
	})
	t.Run("exit code", func(t *testing.T) {
		if code, err := sh("exit 7"); code != 7 || err != nil {
			t.Errorf("exit code %d, %v; want 7", code, err)
		}
	})
	t.Run("a signal to us is its own", func(t *testing.T) {
		ready := filepath.Join(rxevm.ShareOf(socket), "ready")
		ended := make(chan int, 1)
		go func() {
			code, _ := sh("trap 'exit 9' QUIT; touch /verbena/ready; while :; do sleep 0.1; done")
			ended <- code
		}()
		limit := time.After(time.Minute)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := os.Stat(ready); err == nil {
				break
			}
			select {
			case <-tick.C:
			case <-limit:
				t.Fatal("the command does not run")
			}
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		select {
		case code := <-ended:
			if code != 9 {
				t.Errorf("exit code %d, want that of its trap, 9", code)
			}
		case <-limit:
			t.Error("the signal did not reach the command")
		}
	})
	t.Run("nothing stays in the shared folder", func(t *testing.T) {
		if jobs, err := filepath.Glob(filepath.Join(rxevm.ShareOf(socket), "job-*")); err != nil || len(jobs) > 0 {
			t.Errorf("%q are left, %v", jobs, err)
		}
	})
	t.Run("a fault of the kernel", func(t *testing.T) {
		code, err := sh("echo '<1>BUG: provoked' >/dev/kmsg")
		if code == 0 || err == nil || !strings.Contains(err.Error(), "BUG: provoked") {
			t.Errorf("exit code %d, %v; want the fault", code, err)
		}
	})
}
