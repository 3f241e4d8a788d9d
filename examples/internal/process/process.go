package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// asProgram is set in the environment of a test binary that runs the program.
const asProgram = "VERBENA_EXAMPLE"

// deadline is how long a process may run. Only a broken one reaches it, also on an emulated machine.
const deadline = 2 * time.Minute

// patience is how long the resources of a program may take to end, as in package leak.
const patience = 10 * time.Second

// Snapshot is the state of a process. Only *leak.Snapshot implements it; this package is not a test
// and cannot import package leak.
type Snapshot interface {
	Check(wait time.Duration) error
}

// Main runs the program, if a test started this process, and ends the process: with exit code 1 if
// the program left something behind. Otherwise Main returns. A TestMain calls it first:
//
//	func TestMain(m *testing.M) {
//		process.Main(main, leak.Take)
//		leak.Main(m)
//	}
func Main[S Snapshot, G any](program func(), take func(...G) (S, error)) {
	if os.Getenv(asProgram) == "" {
		return
	}
	before, err := take()
	if err == nil {
		program()
		err = before.Check(patience)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// command returns a process that runs the program. It is killed when the test ends.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// Run runs the program until it ends, and returns its exit code and output.
func Run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := command(t, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// Server is a process that runs the program with the argument "serve".
type Server struct {
	Addr string // where it listens, as it printed it

	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// Serve starts a server, and waits until it listens.
func Serve(t *testing.T) *Server {
	t.Helper()
	at := "127.0.0.1:0"
	if os.Getenv("VERBENA_DEVICE") != "" {
		at = ":0" // the address of the device
	}
	s := &Server{t: t, cmd: command(t, "serve", at)}
	s.cmd.Stderr = &s.stderr
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil { // the test failed, and its context has ended: the process is killed
			_ = s.cmd.Wait()
		}
	})
	s.stdout = bufio.NewReader(stdout)
	line, err := s.stdout.ReadString('\n')
	addr, ok := strings.CutPrefix(line, "listening at ")
	if err != nil || !ok {
		err = errors.Join(err, s.cmd.Wait())
		t.Fatalf("serve %s printed %q, want its address: %v\n%s", at, line, err, &s.stderr)
	}
	s.Addr = strings.TrimSpace(addr)
	return s
}

// Dial runs a client of the server, which must end with exit code 0, and returns what the client
// printed.
func (s *Server) Dial(args ...string) string {
	s.t.Helper()
	code, stdout, stderr := Run(s.t, append([]string{"dial", s.Addr}, args...)...)
	if code != 0 || stderr != "" {
		s.t.Fatalf("dial %s: exit code %d, printed %q, and on standard error %q", s.Addr, code, stdout, stderr)
	}
	return stdout
}

// Stop interrupts the server, which must end with exit code 0, and returns what it printed after
// its address.
func (s *Server) Stop() string {
	s.t.Helper()
	err := s.cmd.Process.Signal(os.Interrupt)
	rest, rerr := io.ReadAll(s.stdout) // before Wait, which closes it
	if err := errors.Join(err, rerr, s.cmd.Wait()); err != nil || s.stderr.Len() > 0 {
		s.t.Fatalf("the interrupted server: %v, printed %q, and on standard error %q", err, rest, &s.stderr)
	}
	return string(rest)
}
