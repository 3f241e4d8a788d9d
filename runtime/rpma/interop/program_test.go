package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

// order is an argument of the program: when it disconnects, or that there is no connection.
type order string

const (
	first   order = "first"
	second  order = "second"
	refused order = "refused"
)

// compiled compiles the program where it runs, and returns its path. Without a compiler, or without librpma, it
// skips the test.
func compiled(t *testing.T) string {
	t.Helper()
	names := []string{"cc", "tcc"}
	if cc := os.Getenv("CC"); cc != "" {
		names = []string{cc}
	}
	var cc string
	for _, name := range names {
		if cc, _ = exec.LookPath(name); cc != "" {
			break
		}
	}
	if cc == "" {
		t.Skipf("none of %q is here (Debian: gcc, or tcc and libc6-dev)", names)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "peer")
	out, err := exec.CommandContext(t.Context(), cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/peer.c", "-lrpma").CombinedOutput()
	if err == nil {
		return program
	}
	probe := filepath.Join(dir, "probe.c")
	must.Do(t, os.WriteFile(probe, []byte("#include <librpma.h>\n"), 0o600))
	if _, absent := exec.CommandContext(t.Context(), cc, "-E", probe).Output(); absent != nil {
		t.Skipf("%s finds no librpma.h (Debian: librpma-dev, libibverbs-dev): %v", cc, absent)
	}
	t.Fatalf("peer.c: %v\n%s", err, out)
	return ""
}

// ports counts the ports of passive programs. The connection manager assigns ephemeral ones from 32768 on.
var ports atomic.Uint32

const firstPort = 22_000 // runtime/interop has 20_000, rdmacm/interop 21_000

// running is the program while it runs.
type running struct {
	b   *bench
	cmd *exec.Cmd
	// out and complaints are its standard output and error. They belong to the command until ended.
	out, complaints strings.Builder
	err             error // written before ended is closed
	ended           chan struct{}
}

// start starts the program as that kind of peer, active or passive. It is killed at the timeout of the test. Its output
// is logged when the test fails.
func (b *bench) start(ready *os.File, kind, addr, port string) *running {
	b.Helper()
	cmd := exec.CommandContext(b.ctx, b.program, kind, b.theirs.addr.String(), addr, port, string(b.order), string(b.form))
	p := &running{b: b, cmd: cmd, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = &p.out, &p.complaints, time.Second
	if ready != nil {
		p.cmd.ExtraFiles = []*os.File{ready}
	}
	b.must(p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	b.Cleanup(func() {
		if b.Failed() {
			_ = p.cmd.Process.Kill() // it may wait for us
		}
		if <-p.ended; b.Failed() {
			b.Logf("%v: %v\n%s\n%s", p.cmd, p.err, p.out.String(), p.complaints.String())
		}
	})
	return p
}

// startPassive starts the program as a passive peer, and returns the port when it listens.
func (b *bench) startPassive() (*running, string) {
	b.Helper()
	port := strconv.Itoa(firstPort + int(ports.Add(1)))
	r, w, err := os.Pipe()
	b.must(err)
	defer r.Close()
	p := b.start(w, "passive", b.theirs.addr.String(), port)
	b.must(w.Close()) // the program has it: the read ends with the program
	if n, err := r.Read(make([]byte, 1)); n != 1 {
		b.Fatalf("%v does not listen: %v", p.cmd, err)
	}
	return p, port
}

// startActive starts the program as an active peer of e.
func (e *end) startActive() *running {
	e.b.Helper()
	at := e.ep.Addr()
	return e.b.start(nil, "active", at.Addr().String(), strconv.Itoa(int(at.Port())))
}

// lines waits for the end of the program, which must be successful, and returns the lines of its output.
func (p *running) lines() []string {
	p.b.Helper()
	<-p.ended // the context of start ends it
	if p.err != nil {
		p.b.Fatalf("%v ended with %v", p.cmd, p.err)
	}
	return strings.Split(strings.TrimSuffix(p.out.String(), "\n"), "\n")
}
