package side

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// endTime is how long a child may take to end after its input did, before it is killed: closing
// two runtimes under load takes a second.
const endTime = 10 * time.Second

// CannotError is a child's report that it cannot do the work.
type CannotError struct {
	Side string // its name
	Why  string // its text
}

// Error names the side and the reason.
func (e *CannotError) Error() string { return e.Side + ": " + e.Why }

// Child is a side's process. Its methods are for one goroutine at a time.
type Child struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// Start starts a process and waits until it is ready. The caller closes the child. When ctx ends
// the process is killed, now or later.
//
// Errors: *CannotError, those of cmd.Start, the context's.
func Start(ctx context.Context, name string, cmd *exec.Cmd) (*Child, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Child{name: name, cmd: cmd, in: in, out: bufio.NewReader(out)}
	if _, err := c.answer(ctx, wordReady); err != nil {
		return nil, errors.Join(err, c.kill())
	}
	return c, nil
}

// Round makes the child run one round. It blocks until then, or until ctx ends, which kills the
// child.
//
// Errors: *CannotError, after which further rounds are possible; the end of the child; the
// context's.
func (c *Child) Round(ctx context.Context, told rounds.Values) (rounds.Values, error) {
	if _, err := fmt.Fprintln(c.in, wordRound, told); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	rest, err := c.answer(ctx, wordOK)
	if err != nil {
		return nil, err
	}
	found, err := rounds.Parse(rest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return found, nil
}

// answer reads the next line, which begins with want.
func (c *Child) answer(ctx context.Context, want string) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() }) // fails only if it is dead already
	line, err := c.out.ReadString('\n')
	if !stop() {
		return "", fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
	}
	if err != nil {
		return "", fmt.Errorf("%s: it ended before its answer: %w", c.name, err)
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case want:
		return rest, nil
	case wordCannot:
		return "", &CannotError{Side: c.name, Why: rest}
	}
	return "", fmt.Errorf("%s: it said %q, want %q", c.name, line, want)
}

// Close ends the process and waits for it; it kills one that does not end. It returns the error
// of a process that failed.
func (c *Child) Close() error {
	err := c.in.Close()
	killed := time.AfterFunc(endTime, func() { _ = c.cmd.Process.Kill() }) // fails only if it is dead already
	defer killed.Stop()
	// Its remaining output belongs to no round, but must not block it.
	_, cerr := io.Copy(io.Discard, c.out)
	err = errors.Join(err, cerr)
	if werr := c.cmd.Wait(); werr != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", c.name, werr))
	}
	return err
}

// kill is Close for a process that is no longer needed; it ignores the process's error.
func (c *Child) kill() error {
	err := c.in.Close()
	_ = c.cmd.Process.Kill() // fails only if it is dead already
	_, _ = io.Copy(io.Discard, c.out)
	_ = c.cmd.Wait() // killed by the signal
	return err
}
