package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// programs is a pair of foreign programs that meet at a TCP port, and end by themselves.
type programs struct {
	server, client []string
	env            []string // added to the environment
	port           int
	// read parses the client's output.
	read func(printed string) (rounds.Values, error)
}

const (
	// listenTime bounds the start of a program, endTime its end after its client has ended.
	listenTime, endTime = 20 * time.Second, 10 * time.Second
	// look is the time between two looks for a listener.
	look = 2 * time.Millisecond
)

// find returns the path of a program, or an error that names the Debian package that has it.
func find(program, pkg string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	if _, noApt := exec.LookPath("apt-get"); noApt == nil && os.Geteuid() == 0 {
		return "", fmt.Errorf("%s is not installed; install it by: apt-get install --no-install-recommends %s", program, pkg)
	}
	return "", fmt.Errorf("%s is not installed (Debian: %s)", program, pkg)
}

// freePort returns a TCP port of loopback that nobody has at this time.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return ln.Addr().(*net.TCPAddr).Port, ln.Close()
}

// run runs both programs and parses the output. It blocks until both have ended.
func (p programs) run(ctx context.Context) (rounds.Values, error) {
	ctx, cancel := context.WithCancel(ctx) // kills the server when the client fails
	defer cancel()
	command := func(argv []string, out *bytes.Buffer) *exec.Cmd {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), p.env...), out, out
		return cmd
	}
	var said, printed bytes.Buffer // said is read when the server has ended
	server := command(p.server, &said)
	if err := server.Start(); err != nil {
		return nil, err
	}
	var serverErr error // published by ended
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serverErr = server.Wait()
	}()
	fail := func(who string, err error) (rounds.Values, error) {
		cancel()
		<-ended
		return nil, fmt.Errorf("%s: %w: it printed %q; the server printed %q", who, err, printed.String(), said.String())
	}
	if err := listening(ctx, p.port, ended); err != nil {
		return fail(strings.Join(p.server, " "), err)
	}
	if err := command(p.client, &printed).Run(); err != nil {
		return fail(strings.Join(p.client, " "), err)
	}
	limit := time.NewTimer(endTime)
	defer limit.Stop()
	select {
	case <-ended:
		if serverErr != nil {
			return nil, fmt.Errorf("%s: %w: it printed %q", strings.Join(p.server, " "), serverErr, said.String())
		}
	case <-limit.C:
		return fail(strings.Join(p.server, " "), errors.New("the server does not end"))
	}
	found, err := p.read(printed.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(p.client, " "), err)
	}
	return found, nil
}

// listening waits until a socket listens at a TCP port. A connection made to find out would be
// taken for the client's. ended is closed when the server has ended.
func listening(ctx context.Context, port int, ended <-chan struct{}) error {
	limit := time.Now().Add(listenTime)
	for {
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			text, err := os.ReadFile(table)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if listensAt(string(text), port) {
				return nil
			}
		}
		select {
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no listener at port %d within %v", port, listenTime)
		}
	}
}

// errEnded is the early end of a server.
var errEnded = errors.New("it ended before it listened")

// listensAt reports whether a table of sockets of proc(5), /proc/net/tcp, has a listener at a port.
func listensAt(table string, port int) bool {
	const columnLocal, columnState, stateListen = 1, 3, "0A" // include/net/tcp_states.h: TCP_LISTEN
	at := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > columnState && strings.HasSuffix(f[columnLocal], at) && f[columnState] == stateListen {
			return true
		}
	}
	return false
}
