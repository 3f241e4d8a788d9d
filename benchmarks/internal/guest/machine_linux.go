package guest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/internal/rxevm"
)

// machine is a booted machine.
type machine struct {
	m     *rxevm.Machine
	place Place
	port  int // of the last pair
}

const (
	// firstPort is above the system's ephemeral ports.
	firstPort = 61000
	// listenTime bounds the start of a program under emulation.
	listenTime = time.Minute
	// programs is the folder of programs in the machine, and self this one in it.
	programs = "/tmp/programs"
	self     = "benchmarks"
)

// boot boots a machine with this program in it.
func boot(ctx context.Context, g *Guest) (_ *machine, err error) {
	if err := rxevm.Missing(); err != nil {
		return nil, err
	}
	cfg := rxevm.Config{Log: g.Log}
	shared, err := share(g)
	if err != nil {
		return nil, err
	}
	cfg.Shares = []rxevm.Share{{Path: shared}}
	if g.NVDIMM > 0 {
		cfg.NVDIMM = filepath.Join(g.dir, "nvdimm")
		if err := errors.Join(os.WriteFile(cfg.NVDIMM, nil, 0o600), os.Truncate(cfg.NVDIMM, g.NVDIMM)); err != nil {
			return nil, err
		}
	}
	m, err := rxevm.Boot(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	b := &machine{m: m, port: firstPort, place: Place{Here: "rxe0", There: "rxe1", Own: "10.77.0.1", Addr: "10.77.0.2", Dir: programs, Self: filepath.Join(programs, self)}}
	// Copied into the machine's memory: a program must not be read over the share during a measurement.
	if out, err := m.Shell(ctx, "cp -r "+shared+" "+programs+" && cd "+programs+" && "+cmp.Or(g.Setup, ":")); err != nil {
		return nil, fmt.Errorf("preparing the guest: %w: %s", err, out)
	}
	for device, index := range map[string]*string{b.place.Here: &b.place.GIDHere, b.place.There: &b.place.GIDThere} {
		// The RoCE v2 address that is an IPv4 one; packets of the others go elsewhere. One grep
		// for all: most entries cannot be read, which its exit code reports.
		out, err := m.Shell(ctx, "cd /sys/class/infiniband/"+device+"/ports/1/gids && { grep -ls ':ffff:0a4d:' * || true; }")
		if *index, _, _ = strings.Cut(out, "\n"); err != nil || *index == "" {
			return nil, fmt.Errorf("%s has no IPv4 address in its table: %q, %w", device, out, errors.Join(err, errors.ErrUnsupported))
		}
	}
	return b, nil
}

// share makes the folder of programs on the host.
func share(g *Guest) (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(own)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(g.dir, "programs")
	err = errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, self), text, 0o755))
	for name, text := range g.Files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	return dir, err
}

// Close powers the machine off.
func (b *machine) Close() error { return b.m.Close() }

// watcher collects the output of a program, and closes said when the awaited text has appeared.
type watcher struct {
	mu   sync.Mutex // guards the following fields
	text bytes.Buffer
	want string
	said chan struct{}
	once sync.Once
}

// Write implements io.Writer.
func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	if w.want != "" && strings.Contains(w.text.String(), w.want) {
		w.once.Do(func() { close(w.said) })
	}
	return len(b), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// run runs both programs of a pair, one round.
func (b *machine) run(ctx context.Context, p Pair) (rounds.Values, error) {
	ctx, cancel := context.WithCancel(ctx) // kills the waiting one when the other fails
	defer cancel()
	waiting := &watcher{want: ReadyWord, said: make(chan struct{})}
	server, err := b.m.Start(ctx, rxevm.Cmd{Argv: p.Server, Stdout: waiting, Stderr: waiting, Timeout: PairTime})
	if err != nil {
		return nil, err
	}
	if err := b.listening(ctx, p.Port, server, waiting); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("%s: %w: %s", p.Server[0], err, waiting), server.Wait())
	}
	var printed, trouble bytes.Buffer
	if err := b.m.Run(ctx, rxevm.Cmd{Argv: p.Call, Stdout: &printed, Stderr: &trouble, Timeout: PairTime}); err != nil {
		cancel()
		_ = server.Wait() // it was killed
		return nil, fmt.Errorf("%s: %w: %s%s; the server printed %s", p.Call[0], err, printed.String(), trouble.String(), waiting)
	}
	if err := server.Wait(); err != nil {
		return nil, fmt.Errorf("%s, the server: %w: %s", p.Server[0], err, waiting)
	}
	return p.Read(printed.String())
}

// listening waits until the server accepts connections.
func (b *machine) listening(ctx context.Context, port int, server *rxevm.Process, says *watcher) error {
	limit, cancel := context.WithTimeout(ctx, listenTime)
	defer cancel()
	if port == 0 {
		select {
		case <-says.said:
			return nil
		case <-server.Done():
			return errors.New("it ended")
		case <-limit.Done():
			return limit.Err()
		}
	}
	// State 0A is LISTEN (include/net/tcp_states.h).
	_, err := b.m.Shell(limit, fmt.Sprintf("until grep -q ':%04X 0*:0000 0A' /proc/net/tcp /proc/net/tcp6; do kill -0 %d || exit 1; sleep 0.02; done", port, server.Pid()))
	if err != nil {
		return fmt.Errorf("no listener at port %d: %w", port, err)
	}
	return nil
}
