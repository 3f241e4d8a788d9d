package overhead

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/internal/rxevm"
)

// guest is the machine with Soft-RoCE: booted once, for all measurements in it.
type guest struct {
	m     *rxevm.Machine
	place place
	port  int // of the last pairing: each uses a new one, because an old one may linger
}

const (
	// firstPort is above the system's ephemeral ports.
	firstPort = 61000
	// listenTime bounds the start of a program under emulation.
	listenTime = time.Minute
)

// boot boots a machine with this program in it. folder belongs to the session.
func boot(ctx context.Context, folder string, log io.Writer) (_ *guest, err error) {
	if err := rxevm.Missing(); err != nil {
		return nil, err
	}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(own)
	if err != nil {
		return nil, err
	}
	// Copied into the machine's memory: the program must not be read over the share during a
	// measurement.
	shared := filepath.Join(folder, "share")
	if err := os.Mkdir(shared, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(shared, "benchmarks"), text, 0o755); err != nil {
		return nil, err
	}
	m, err := rxevm.Boot(ctx, rxevm.Config{Shares: []rxevm.Share{{Path: shared}}, FastClock: true, Log: log})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	g := &guest{m: m, port: firstPort, place: place{here: "rxe0", there: "rxe1", own: "10.77.0.1", addr: "10.77.0.2", self: "/tmp/benchmarks"}}
	if out, err := m.Shell(ctx, "cp "+shared+"/benchmarks "+g.place.self+" && chmod +x "+g.place.self); err != nil {
		return nil, fmt.Errorf("carrying this program into the guest: %w: %s", err, out)
	}
	for device, index := range map[string]*string{g.place.here: &g.place.gidHere, g.place.there: &g.place.gidThere} {
		// The RoCE v2 address that is an IPv4 one; packets of the others go elsewhere. One grep
		// for all: most entries cannot be read, which its exit code reports.
		out, err := m.Shell(ctx, "cd /sys/class/infiniband/"+device+"/ports/1/gids && { grep -ls ':ffff:0a4d:' * || true; }")
		if *index, _, _ = strings.Cut(out, "\n"); err != nil || *index == "" {
			return nil, fmt.Errorf("%s has no IPv4 address in its table: %q, %w", device, out, errors.Join(err, errors.ErrUnsupported))
		}
	}
	return g, nil
}

// Close powers the machine off.
func (g *guest) Close() error { return g.m.Close() }

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

// run runs both programs of a pairing, one round.
func (g *guest) run(ctx context.Context, p pairing) (rounds.Values, error) {
	ctx, cancel := context.WithCancel(ctx) // kills the waiting one when the other fails
	defer cancel()
	waiting := &watcher{want: readyWord, said: make(chan struct{})}
	server, err := g.m.Start(ctx, rxevm.Cmd{Argv: p.server, Stdout: waiting, Stderr: waiting, Timeout: talkTime})
	if err != nil {
		return nil, err
	}
	if err := g.listening(ctx, p.port, server, waiting); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("%s: %w: %s", p.server[0], err, waiting), server.Wait())
	}
	var printed, trouble bytes.Buffer
	if err := g.m.Run(ctx, rxevm.Cmd{Argv: p.call, Stdout: &printed, Stderr: &trouble, Timeout: talkTime}); err != nil {
		cancel()
		_ = server.Wait() // it was killed
		return nil, fmt.Errorf("%s: %w: %s%s; the server printed %s", p.call[0], err, printed.String(), trouble.String(), waiting)
	}
	if err := server.Wait(); err != nil {
		return nil, fmt.Errorf("%s, the server: %w: %s", p.server[0], err, waiting)
	}
	return p.read(printed.String())
}

// listening waits until the server accepts connections.
func (g *guest) listening(ctx context.Context, port int, server *rxevm.Process, says *watcher) error {
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
	_, err := g.m.Shell(limit, fmt.Sprintf("until grep -q ':%04X 0*:0000 0A' /proc/net/tcp /proc/net/tcp6; do kill -0 %d || exit 1; sleep 0.02; done", port, server.Pid()))
	if err != nil {
		return fmt.Errorf("no listener at port %d: %w", port, err)
	}
	return nil
}

// next returns a port that no pairing has used.
func (g *guest) next() int {
	g.port++
	return g.port
}
