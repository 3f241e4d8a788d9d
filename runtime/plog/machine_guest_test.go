//go:build linux && verbena_rxevm

package plog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/rxevm"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// role is the environment variable with the role of a process in the machine, and its arguments.
const role = "VERBENA_PLOG_ROLE"

// device is the devdax device of the machine.
const device = "/dev/dax0.0"

// guestPatience is the time for each step in a machine that is emulated on a busy host.
const guestPatience = 2 * time.Minute

// The mark of a region that is not a log: some bytes behind those of the log.
const (
	markSize = 1 << 20
	markAt   = markSize - 5000
	markText = "persistent memory"
)

// act is a process in the machine.
func act(t *testing.T, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), guestPatience)
	defer cancel()
	open := func(device string) *verbena.Runtime { return must.Get(verbena.Open(verbena.Config{Device: device}))(t) }
	switch args[0] {
	case "serve":
		beVictim(t, verbena.Config{Device: "ibv:rxe1"}, "10.77.0.2:7000", device, func(*Reader) {})
	case "list": // what is persistent: the mark, and the records, which are freed
		rt := open("ibv:rxe1")
		r := must.Get(rt.NewFileRegion(device, markSize, Access))(t)
		if got := r.Bytes()[markAt:][:len(markText)]; string(got) != markText {
			t.Fatalf("the mark is %q, want %q", got, markText)
		}
		must.Do(t, r.Close())
		l, _ := openOrCreate(t, rt, device)
		for lane := range l.Lanes() {
			r := must.Get(l.Reader(lane))(t)
			for _, rec := range must.Get(readAll(r))(t) {
				fmt.Printf("record %d %d %s\n", rec.Lane, rec.Position, rec.Payload)
			}
			must.Do(t, r.Trim())
		}
		must.Do(t, rt.Close(ctx))
	case "append":
		rt := open("ibv:rxe0")
		var all sync.WaitGroup
		for lane := range killedLanes {
			a := &appender{lane: lane, number: must.Get(strconv.Atoi(args[1+lane]))(t), started: func(int) {},
				acked: func(at uint64, n int) { fmt.Printf("acknowledged %d %d %d\n", lane, at, n) }}
			all.Go(func() {
				fmt.Fprintln(os.Stderr, a.run(context.Background(), rt, "10.77.0.2:7000", rand.New(rand.NewPCG(rand.Uint64(), 5))))
			})
		}
		all.Wait()
	case "mark":
		rt := open("ibv:rxe1")
		r := must.Get(rt.NewFileRegion(device, markSize, Access))(t)
		fmt.Println(r.Persistence())
		copy(r.Bytes()[markAt:], markText)
		must.Do(t, r.Sync(markAt, len(markText)))
		must.Do(t, r.Close())
		must.Do(t, rt.Close(ctx))
	case "flush": // a peer on the software RNIC flushes a file to persistence
		server, client := open(""), open("")
		r := must.Get(server.NewFileRegion(args[1], markSize, Access|verbs.AccessRemoteWrite))(t)
		ln := must.Get(server.Listen(":0"))(t)
		c := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		b := must.Get(client.Alloc(len(markText)))(t)
		copy(b.Bytes(), markText)
		at := must.Get(r.Remote(markAt, len(markText)))(t)
		must.Get(c.Do(ctx, new(verbena.WriteOp(b.Slice(), at))))(t)
		must.Get(c.Do(ctx, new(verbena.FlushOp(at, verbs.FlushPersistent))))(t)
		fmt.Println(r.Persistence())
		must.Do(t, errors.Join(b.Release(), c.Close(ctx), ln.Close(ctx), client.Close(ctx), server.Close(ctx)))
	}
}

// guest is a machine with persistent memory, in which this test runs as other processes.
type guest struct {
	*rxevm.Machine
	t *testing.T
}

// boot boots a machine on a file of persistent memory.
func boot(t *testing.T, nvdimm string) *guest {
	t.Helper()
	exe := must.Get(os.Executable())(t)
	m, err := rxevm.Boot(t.Context(), rxevm.Config{NVDIMM: nvdimm, Shares: []rxevm.Share{{Path: filepath.Dir(exe)}}})
	must.Do(t, err)
	g := &guest{m, t}
	t.Cleanup(func() {
		if err := m.Close(); err != nil && !errors.Is(err, rxevm.ErrLost) {
			t.Errorf("closing the machine: %v", err)
		}
		if t.Failed() {
			t.Logf("its kernel's log:\n%s", m.Log())
		}
	})
	g.shell("cp " + exe + " /tmp/plog.test")
	return g
}

// shell runs a script in the machine and returns its output; the script must succeed.
func (g *guest) shell(script string) string {
	g.t.Helper()
	out, err := g.Shell(g.t.Context(), script)
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// act runs a process to its end and returns what it printed.
func (g *guest) act(args ...string) string {
	g.t.Helper()
	return strings.TrimSuffix(g.shell(role+"='"+strings.Join(args, " ")+"' /tmp/plog.test -test.run=^TestKilledMachineLosesNothing$"), "PASS\n")
}

// start starts a process that runs until the machine is killed.
func (g *guest) start(args ...string) *said {
	g.t.Helper()
	s, errs := &said{heard: make(chan struct{}, 1)}, &said{heard: make(chan struct{}, 1)}
	_, err := g.Start(context.WithoutCancel(g.t.Context()), rxevm.Cmd{Argv: []string{"/tmp/plog.test", "-test.run=^TestKilledMachineLosesNothing$"},
		Env: []string{role + "=" + strings.Join(args, " ")}, Stdout: s, Stderr: errs})
	must.Do(g.t, err)
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.t.Logf("%v said: %s%s", args, s, errs)
		}
	})
	return s
}

// said is what a process has printed.
type said struct {
	mu    sync.Mutex
	text  strings.Builder
	heard chan struct{}
}

// Write implements io.Writer.
func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.heard <- struct{}{}:
	default:
	}
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// lines waits until the process has printed n lines.
func (s *said) lines(t *testing.T, n int) {
	t.Helper()
	for end := time.After(guestPatience); strings.Count(s.String(), "\n") < n; {
		select {
		case <-s.heard:
		case <-end:
			t.Fatalf("printed less than %d lines: %q", n, s)
		}
	}
}

// list returns the records of the log, as a process in the machine finds them.
func (g *guest) list() (found []Record) {
	g.t.Helper()
	for line := range strings.Lines(g.act("list")) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(f) != 4 || f[0] != "record" {
			g.t.Fatalf("the machine said %q", line)
		}
		found = append(found, Record{Lane: must.Get(strconv.Atoi(f[1]))(g.t), Position: must.Get(strconv.ParseUint(f[2], 10, 64))(g.t), Payload: []byte(f[3])})
	}
	return found
}

// Rule: what was made persistent on a devdax device is there after the machine was killed: bytes that a
// program has stored, and the acknowledged records of a log, which four writers of another process append over
// Soft-RoCE while the machine is killed. On a file system with dax, a peer's FLUSH writes cache lines back.
//
// What a process in the machine says reaches this test later, or never. So an acknowledgement that it has
// not heard of counts as unknown, and the server does not free records: what it said of that would be lost
// with the machine. The process that lists the records frees them.
func TestKilledMachineLosesNothing(t *testing.T) {
	if args := strings.Fields(os.Getenv(role)); len(args) > 0 {
		act(t, args)
		return
	}
	if err := rxevm.Missing(); err != nil {
		t.Skip(err)
	}
	nvdimm := filepath.Join(t.TempDir(), "nvdimm")
	must.Do(t, os.WriteFile(nvdimm, nil, 0o600))
	must.Do(t, os.Truncate(nvdimm, rxevm.NVDIMMUnit))
	v := newLives()
	g := boot(t, nvdimm)
	g.shell("ndctl create-namespace -f -e namespace0.0 -m devdax -M mem && test -c " + device)
	if got := g.act("mark"); got != "devdax clwb\n" {
		t.Errorf("the device is %q, want devdax, persistent by clwb", got)
	}
	n := kills(t, 1)
	for life := range n {
		server := g.start("serve")
		server.lines(t, 1)
		last := make([]string, killedLanes)
		for lane := range v {
			last[lane] = strconv.Itoa(v[lane].last + 1000) // what was not heard of may be there
		}
		writers := g.start(append([]string{"append"}, last...)...)
		writers.lines(t, 30+rand.IntN(100)) // the kill may hit any stage
		g.Kill()
		_ = g.Close()
		v.hear(t, writers.String())
		g = boot(t, nvdimm)
		found := g.list()
		for _, rec := range found {
			v[rec.Lane].last = max(v[rec.Lane].last, numberOf(rec.Lane, string(rec.Payload)))
		}
		if err := v.check(found); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		for _, rec := range found {
			v.has(rec.Lane, rec.Position)
		}
	}
	v.report(t, 20*n)
	g.shell("ndctl create-namespace -f -e namespace0.0 -m fsdax -M mem && modprobe ext4 && mkfs.ext4 -q -b 4096 /dev/pmem0 && mkdir /mnt && mount -o dax /dev/pmem0 /mnt")
	if got := g.act("flush", "/mnt/file"); got != "fsdax clwb\n" {
		t.Errorf("the file is %q, want fsdax, persistent by clwb", got)
	}
	if got := g.shell("umount /mnt && mount -o dax /dev/pmem0 /mnt && dd if=/mnt/file bs=1 skip=" + strconv.Itoa(markAt) + " count=" + strconv.Itoa(len(markText)) + " status=none"); got != markText {
		t.Errorf("the file has %q, want %q", got, markText)
	}
}
