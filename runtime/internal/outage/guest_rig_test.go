//go:build linux && verbena_rxevm

package outage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rxevm"
)

// Timeouts for machines emulated on a busy host.
const (
	// guestStart is the time a peer has to connect for each role.
	guestStart = 60 * time.Second
	// guestStop is the time it has to end and report.
	guestStop = closeBound + 60*time.Second
	// guestSlack is added to the bounds of operations: a second until the runtime destroys queue
	// pairs that the device does not flush, and the seconds in which a busy host does not run the
	// machine.
	guestSlack = 8 * time.Second
	// guestOutage is the time for all operations affected by an outage to end.
	guestOutage = DefaultRecvBound + 30*time.Second
)

// guests are two machines on a cable, with the program peer in both.
type guests struct {
	cable *rxevm.Cable
	m     [2]*rxevm.Machine
	off   bool // machine 1 was powered off
}

// bootGuests boots both machines at once. Where no machine is possible it skips the test with the
// reason.
func bootGuests(t *testing.T) *guests {
	t.Helper()
	if err := rxevm.Missing(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "peer"), "./peer")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	g := &guests{cable: rxevm.NewCable()}
	t.Cleanup(func() {
		if err := g.cable.Close(); err != nil {
			t.Errorf("closing the cable: %v", err)
		}
	})
	var errs [2]error
	var wg sync.WaitGroup
	for i := range g.m {
		wg.Go(func() {
			// One processor: interfaces that come and go patch static keys into the running kernel, and
			// an emulated second processor may run a breakpoint of that after it is taken out ("Oops:
			// int3"; multipath-tcp/mptcp_net-next issue 471).
			g.m[i], errs[i] = rxevm.Boot(t.Context(), rxevm.Config{CPUs: 1, Cable: g.cable, Shares: []rxevm.Share{{Path: dir}}})
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for i, m := range g.m {
			if m == nil {
				continue
			}
			if err := m.Close(); err != nil && !(i == 1 && g.off && errors.Is(err, rxevm.ErrLost)) && !gaveUp(err) {
				t.Errorf("closing machine %d: %v", i, err)
			}
		}
	})
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	for i := range g.m {
		g.shell(t, i, "cp "+dir+"/peer /tmp/peer")
	}
	return g
}

// shell runs a script in a machine and returns its output; the script must succeed.
func (g *guests) shell(t *testing.T, i int, script string) string {
	t.Helper()
	out, err := g.m[i].Shell(t.Context(), script)
	if err != nil {
		t.Fatalf("machine %d: %s: %v\n%s", i, script, err, out)
	}
	return out
}

// addr returns the address on the cable where machine i serves.
func (g *guests) addr(i int) string { return g.m[i].CableAddr() + ":7000" }

// process is a peer in a machine.
type process struct {
	t        *testing.T
	p        *rxevm.Process
	out, err *lines
}

// start starts a peer in machine i. It is killed at the end of the test if it still runs.
func (g *guests) start(t *testing.T, i int, args ...string) *process {
	t.Helper()
	p := &process{t: t, out: newLines(), err: newLines()}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // it outlives the test's context
	var err error
	if p.p, err = g.m[i].Start(ctx, rxevm.Cmd{Argv: append([]string{"/tmp/peer", "-slack", guestSlack.String()}, args...), Stdout: p.out, Stderr: p.err}); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		<-p.p.Done()
		if t.Failed() {
			t.Logf("peer %v said:\n%s%s", args, p.out, p.err)
			seen, err := g.m[i].Shell(context.WithoutCancel(t.Context()), "rdma link; ip -s addr show dev "+rxevm.CableNIC+"; ip neigh; rdma resource show cm_id")
			t.Logf("its machine: %v\n%s", err, seen)
		}
	})
	return p
}

// onCable starts a peer in each machine; they load each other over the cable. It waits until they
// are connected.
func (g *guests) onCable(t *testing.T, args ...string) (a, b *process) {
	t.Helper()
	var ps [2]*process
	for i := range ps {
		ps[i] = g.onEnd(t, i, args...)
	}
	for _, p := range ps {
		p.out.must(t, guestStart, "connected")
	}
	return ps[0], ps[1]
}

// onEnd starts the peer of one end of the cable.
func (g *guests) onEnd(t *testing.T, i int, args ...string) *process {
	t.Helper()
	return g.start(t, i, append([]string{"-device", "ibv:" + rxevm.CableDevice, "-serve", g.addr(i), "-dial", g.addr(1 - i)}, args...)...)
}

// signal sends a signal to processes.
func signal(t *testing.T, sig syscall.Signal, ps ...*process) {
	t.Helper()
	for _, p := range ps {
		if err := p.p.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
}

// mark and heal signal processes that their peer is gone, and that it is back.
func mark(t *testing.T, ps ...*process) { t.Helper(); signal(t, syscall.SIGUSR1, ps...) }
func heal(t *testing.T, ps ...*process) { t.Helper(); signal(t, syscall.SIGUSR2, ps...) }

// stop ends processes and returns their reports, whose invariants it checks.
func stop(t *testing.T, ps ...*process) (rs []*Report) {
	t.Helper()
	signal(t, syscall.SIGTERM, ps...)
	for _, p := range ps {
		select {
		case <-p.p.Done():
		case <-time.After(guestStop):
			t.Fatalf("a peer did not end within %v", guestStop)
		}
		if err := p.p.Wait(); gaveUp(err) {
			t.Logf("beside the peer: %v", err)
		} else if err != nil {
			t.Errorf("the peer: %v", err)
		}
		rs = append(rs, good(t, p.out.report(t)))
	}
	return rs
}

// gaveUp reports whether err is only the warning of a kernel whose completer found an unexpected
// answer: it then completes the request as flushed without moving the queue pair to ERR, and warns
// of that (WARN_ON_ONCE in COMPST_ERROR of rxe_completer, drivers/infiniband/sw/rxe/rxe_comp.c). It
// does so where packets are lost, or so late that they are retransmitted; the load sees a failed
// connection.
func gaveUp(err error) bool {
	var k *rxevm.KernelError
	var e *rxevm.ExitError
	return errors.As(err, &k) && !errors.As(err, &e) && strings.Contains(k.Line, "rxe_completer")
}

// classes lists the failures by kind and class, one a line.
func (r *Report) classes() string {
	var b strings.Builder
	for k, t := range r.Ops {
		for c, n := range t.Failed {
			fmt.Fprintf(&b, "%s: %d %s\n", k, n, c)
		}
	}
	return b.String()
}

// report returns the report in the output.
func (l *lines) report(t testing.TB) *Report {
	t.Helper()
	for line := range bytes.Lines([]byte(l.String())) {
		if bytes.HasPrefix(line, []byte("{")) {
			r := new(Report)
			if err := json.Unmarshal(line, r); err != nil {
				t.Fatalf("the report: %v", err)
			}
			return r
		}
	}
	t.Fatalf("no report; said: %s", l)
	return nil
}
