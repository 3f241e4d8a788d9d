//go:build linux && verbena_rxevm

package rxevm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These tests boot machines. scripts/rxe.sh runs them (make test-rxe), where a machine is
// available. They have a build tag of their own, so that an ordinary go test does not run them.

// closeAfter closes the machine when the test has ended, and prints its kernel's log if the close
// or the test fails.
func closeAfter(t *testing.T, m *Machine) {
	t.Cleanup(func() {
		err := m.Close()
		if err != nil {
			t.Errorf("closing the machine: %v", err)
		}
		if t.Failed() {
			t.Logf("its kernel's log ends:\n%s", tail(m.Log(), logTail))
		}
	})
}

// TestMachine boots one machine for all tests that need only one, and leave it alive. The first needs a
// machine that has just booted, the last provokes a fault of its kernel.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	m, err := Boot(t.Context(), Config{Shares: []Share{{Path: dir, Writable: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("the first connection waits for no neighbor", func(t *testing.T) { firstConnection(t, m) })
	t.Run("commands", func(t *testing.T) { commands(t, m, dir) })
	t.Run("multicast crosses the cable", func(t *testing.T) { multicast(t, m) })
	t.Run("the clock keeps time", func(t *testing.T) { keepsTime(t, m) })
	t.Run("a fault of the kernel fails the run", func(t *testing.T) { kernelFault(t, m) })
	var k *KernelError
	if err := m.Close(); !errors.As(err, &k) || !strings.Contains(k.Log, provoked) {
		t.Errorf("the machine closed with %v, want a KernelError for the fault that was provoked", err)
	}
	if t.Failed() {
		t.Logf("its kernel's log ends:\n%s", tail(m.Log(), logTail))
	}
}

// commands runs commands in a machine that shares dir: each has its output, its code, its end.
func commands(t *testing.T, m *Machine, dir string) {
	ctx := t.Context()
	t.Run("exit code and both outputs", func(t *testing.T) {
		var out, errs bytes.Buffer
		err := m.Run(ctx, Cmd{Argv: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}, Stdout: &out, Stderr: &errs})
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Code != 7 || exit.Signal != "" {
			t.Errorf("ended with %v, want exit code 7", err)
		}
		if out.String() != "out\n" || errs.String() != "err\n" {
			t.Errorf("printed %q and %q", out.String(), errs.String())
		}
	})
	t.Run("no such program", func(t *testing.T) {
		var exit *ExitError
		if err := m.Run(ctx, Cmd{Argv: []string{"no-such-program"}}); !errors.As(err, &exit) || exit.Code != 127 || exit.Reason == "" {
			t.Errorf("ended with %v, want 127 and a reason", err)
		}
	})
	t.Run("environment and folder", func(t *testing.T) {
		var out bytes.Buffer
		err := m.Run(ctx, Cmd{Argv: []string{"sh", "-c", "echo $VERBENA_TEST_DEVICES $X; pwd; echo written >file"},
			Env: []string{"X=y"}, Dir: dir, Stdout: &out})
		if err != nil || out.String() != "rxe0,rxe1 y\n"+dir+"\n" {
			t.Errorf("%v, printed %q", err, out.String())
		}
		if text, err := os.ReadFile(filepath.Join(dir, "file")); string(text) != "written\n" {
			t.Errorf("on the host the file has %q, %v", text, err)
		}
	})
	t.Run("a limit kills, with all that the command started", func(t *testing.T) {
		began := time.Now()
		err := m.Run(ctx, Cmd{Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000"}, Timeout: time.Second})
		if !errors.Is(err, ErrTimeout) || time.Since(began) > patience+killGrace {
			t.Errorf("%v after %v, want ErrTimeout", err, time.Since(began))
		}
		if out, err := m.Shell(ctx, "pgrep -x sleep || echo none"); err != nil || out != "none\n" {
			t.Errorf("still there: %q, %v", out, err)
		}
	})
	t.Run("a signal", func(t *testing.T) {
		p, err := m.Start(ctx, Cmd{Argv: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		if p.Pid() == 0 {
			t.Error("a running command without a process id")
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		var exit *ExitError
		if err := p.Wait(); !errors.As(err, &exit) || exit.Code != 128+int(syscall.SIGTERM) || exit.Signal != "terminated" {
			t.Errorf("ended with %v, want a signal", err)
		}
	})
	t.Run("the end of the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		p, err := m.Start(ctx, Cmd{Argv: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := p.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v, want context.Canceled", err)
		}
	})
	t.Run("much output, several at once", func(t *testing.T) {
		const size = 4 << 20
		var outs [3]bytes.Buffer
		var ps [3]*Process
		for i := range ps {
			var err error
			if ps[i], err = m.Start(ctx, Cmd{Argv: []string{"head", "-c", "4194304", "/dev/zero"}, Stdout: &outs[i]}); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range ps {
			if err := p.Wait(); err != nil || outs[i].Len() != size {
				t.Errorf("command %d: %v, %d bytes, want %d", i, err, outs[i].Len(), size)
			}
		}
	})
	t.Run("real packets between the devices", func(t *testing.T) {
		out, err := m.Shell(ctx, `
before=$(cat /sys/class/net/r0/statistics/tx_packets)
rping -s -a 10.77.0.2 -C 3 -v >/dev/null & sleep 2
rping -c -a 10.77.0.2 -I 10.77.0.1 -C 3 -v
wait
test $(( $(cat /sys/class/net/r0/statistics/tx_packets) - before )) -gt 10 && echo packets`)
		if err != nil || !strings.Contains(out, "packets") {
			t.Errorf("%v:\n%s", err, out)
		}
	})
}

// provoked is the kernel's message of kernelFault.
const provoked = "BUG: unable to handle a test"

// A kernel fault fails the command during which it was logged, whatever its exit code, and the
// machine; not the commands after it.
func kernelFault(t *testing.T, m *Machine) {
	_, err := m.Shell(t.Context(), "echo '<1>"+provoked+"' >/dev/kmsg")
	var k *KernelError
	if !errors.As(err, &k) || !strings.Contains(k.Log, provoked) {
		t.Errorf("the command ended with %v, want a KernelError with the log", err)
	}
	if _, err := m.Shell(t.Context(), "true"); err != nil {
		t.Errorf("the command after it: %v", err)
	}
}

// A machine can have NUMA nodes. When it dies, its commands end at once.
func TestMachineWithNUMAIsLost(t *testing.T) {
	m, err := Boot(t.Context(), Config{NUMANodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := m.Shell(t.Context(), "cat /sys/devices/system/node/online /sys/devices/system/node/node*/cpulist"); err != nil || out != "0-1\n0\n1\n" {
		t.Errorf("nodes: %v, %q; want two with a processor each", err, out)
	}
	p, err := m.Start(t.Context(), Cmd{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Pid()
	if err := m.qemu.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); !errors.Is(err, ErrLost) {
		t.Errorf("the command ended with %v, want ErrLost", err)
	}
	if _, err := m.Start(t.Context(), Cmd{Argv: []string{"true"}}); !errors.Is(err, ErrLost) {
		t.Errorf("another command: %v, want ErrLost", err)
	}
	if err := m.Close(); !errors.Is(err, ErrLost) {
		t.Errorf("the machine closed with %v, want ErrLost", err)
	}
}
