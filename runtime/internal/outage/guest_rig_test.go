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

// Patience with machines that are emulated on a busy one.
const (
	// guestStart is what a peer has to connect for each role.
	guestStart = 60 * time.Second
	// guestStop is what it has to end and report.
	guestStop = closeBound + 60*time.Second
	// guestSlack is what operations are allowed beside their bounds: a second until
	// the runtime destroys what the device does not flush, and the machine's not
	// running for seconds when its host has other things to do.
	guestSlack = 8 * time.Second
	// guestOutage is what it has until all has ended that an outage met.
	guestOutage = DefaultRecvBound + 30*time.Second
)

// guests are two machines on a cable, with the program peer in both.
type guests struct {
	cable *rxevm.Cable
	m     [2]*rxevm.Machine
	off   bool // machine 1 was powered off
}

// bootGuests boots them, at once. Where no machine is possible the test is skipped
// with the reason.
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
			g.m[i], errs[i] = rxevm.Boot(t.Context(), rxevm.Config{Cable: g.cable, Shares: []rxevm.Share{{Path: dir}}})
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

// shell runs a script in a machine, which must succeed, and returns what it printed.
func (g *guests) shell(t *testing.T, i int, script string) string {
	t.Helper()
	out, err := g.m[i].Shell(t.Context(), script)
	if err != nil {
		t.Fatalf("machine %d: %s: %v\n%s", i, script, err, out)
	}
	return out
}

// addr is where machine i serves on the cable.
func (g *guests) addr(i int) string { return g.m[i].CableAddr() + ":7000" }

// process is a peer in a machine.
type process struct {
	t        *testing.T
	p        *rxevm.Process
	out, err *lines
}

// start starts a peer in machine i. It is killed at the end of the test if it is
// there yet.
func (g *guests) start(t *testing.T, i int, args ...string) *process {
	t.Helper()
	p := &process{t: t, out: newLines(), err: newLines()}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // it is given time to end
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
		}
	})
	return p
}

// onCable starts a peer in both machines that load one another over the cable, and
// waits until they do.
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

// mark and heal tell processes that their peer has gone, and that it is back.
func mark(t *testing.T, ps ...*process) { t.Helper(); signal(t, syscall.SIGUSR1, ps...) }
func heal(t *testing.T, ps ...*process) { t.Helper(); signal(t, syscall.SIGUSR2, ps...) }

// stop ends processes and returns their reports, in which all invariants hold.
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

// gaveUp tells whether err is no more than the warning of a kernel whose completer found an
// answer that it did not expect: it completes the request as flushed then, without anybody
// having moved the queue pair to ERR, and warns of that (WARN_ON_ONCE in COMPST_ERROR of
// rxe_completer, drivers/infiniband/sw/rxe/rxe_comp.c). It does so where packets are lost,
// or so late that they are sent again; the load sees a connection that fails.
func gaveUp(err error) bool {
	var k *rxevm.KernelError
	var e *rxevm.ExitError
	return errors.As(err, &k) && !errors.As(err, &e) && strings.Contains(k.Line, "rxe_completer")
}

// classes lists the kinds and classes of failures, a line each.
func (r *Report) classes() string {
	var b strings.Builder
	for k, t := range r.Ops {
		for c, n := range t.Failed {
			fmt.Fprintf(&b, "%s: %d %s\n", k, n, c)
		}
	}
	return b.String()
}

// report is the report among what was said.
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
