package rxevm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// The times at a command's end.
const (
	// killGrace is how long a command may take to end after SIGKILL: the kernel destroys its
	// queue pairs first, under emulation.
	killGrace = 30 * time.Second
	// markGrace is how long the kernel's log may lag behind the link.
	markGrace = 5 * time.Second
	// stuckGrace is how long the kernel may take to log its blocked tasks.
	stuckGrace = 3 * time.Second
)

// maxQueued is the limit of output that waits for a writer that is slower than the command, in
// bytes.
const maxQueued = 64 << 20

// Process is a command that was started.
//
//	running --(Exit)--> ended --(its mark in the log, output written)--> done
//	   |  \--(limit, ctx, output)--> killed --(Exit)--> ended
//	   |                                \--(grace over)--> done, stuck
//	   \--(machine lost or closed)--> done
type Process struct {
	m      *Machine
	id     uint32
	cmd    Cmd
	faults int // the kernel's fault count at the start
	mark   <-chan struct{}

	started chan struct{} // closed when pid is known, or never will be
	exited  chan struct{} // closed when ended or failed is set
	done    chan struct{} // closed when err is set
	flooded chan struct{} // closed by take when output was dropped
	once    sync.Once     // of exited
	begun   sync.Once     // of started

	pid    int
	ended  wire.Ended
	failed error // why there is no ended
	err    error

	mu     sync.Mutex // guards the following fields
	queue  []wire.Frame
	queued int           // bytes queued or being written
	more   chan struct{} // capacity 1: something was queued
}

// Start starts a command. It blocks only until the link accepts the request; if the command
// cannot be started, Wait returns an [*ExitError]. When ctx ends or cmd.Timeout has passed, the
// command and its process group are killed.
func (m *Machine) Start(ctx context.Context, cmd Cmd) (*Process, error) {
	if len(cmd.Argv) == 0 {
		return nil, errors.New("rxevm: no command")
	}
	if cmd.Timeout == 0 {
		cmd.Timeout = defaultTimeout
	}
	p := &Process{m: m, cmd: cmd, faults: m.console.seen(), more: make(chan struct{}, 1),
		started: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}), flooded: make(chan struct{})}
	m.mu.Lock()
	if err := m.fatal; err != nil {
		m.mu.Unlock()
		return nil, err
	}
	m.last++
	p.id = m.last
	p.mark = m.console.expect(p.id)
	m.jobs[p.id] = p
	m.mu.Unlock()
	go p.follow(ctx)
	spec := wire.Spec{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir, Carry: cmd.Carry}
	text, err := json.Marshal(spec)
	if err == nil {
		err = m.send(wire.Frame{Kind: wire.Start, Job: p.id, Payload: text})
	}
	if err != nil {
		p.finish(fmt.Errorf("rxevm: starting %s: %w", cmd.Argv[0], err))
		<-p.done
		return nil, p.err
	}
	return p, nil
}

// Run starts a command and waits for it; see [Machine.Start], [Process.Wait].
func (m *Machine) Run(ctx context.Context, cmd Cmd) error {
	p, err := m.Start(ctx, cmd)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Shell runs a script with the machine's sh and returns its output, both streams. It blocks like
// [Machine.Run].
func (m *Machine) Shell(ctx context.Context, script string) (string, error) {
	var out lockedBuffer
	err := m.Run(ctx, Cmd{Argv: []string{"sh", "-ec", script}, Stdout: &out, Stderr: &out})
	return out.String(), err
}

// lockedBuffer is a buffer for two writers.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write appends.
func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String returns the text written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Wait blocks until the command has ended and its output is written. The error is nil for exit
// code 0 and a kernel without a fault; otherwise an [*ExitError], [ErrTimeout], [ErrStuck],
// [ErrOutput], the error of ctx, [ErrLost] or [ErrClosed], joined with a [*KernelError] if there
// was a fault. It may be called repeatedly.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Done returns a channel that is closed when Wait does not block.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid returns the process's id in the machine. It blocks until the command runs; the id is 0 if
// it was not started. Its process group has the same number.
func (p *Process) Pid() int {
	<-p.started
	return p.pid
}

// Signal sends a signal to the command's process group. It does not wait for an effect, and has
// none on a command that has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.m.send(wire.Frame{Kind: wire.Signal, Job: p.id, Payload: []byte{byte(sig)}})
}

// Kill is Signal with SIGKILL.
func (p *Process) Kill() error { return p.Signal(syscall.SIGKILL) }

// take handles a frame of the job. Only the machine's receive calls it.
func (p *Process) take(f wire.Frame) {
	switch f.Kind {
	case wire.Started:
		if n, err := strconv.Atoi(string(f.Payload)); err == nil {
			p.begun.Do(func() {
				p.pid = n
				close(p.started)
			})
		}
	case wire.Stdout, wire.Stderr:
		p.mu.Lock()
		over := p.queued+len(f.Payload) > maxQueued
		if !over {
			p.queue = append(p.queue, f)
			p.queued += len(f.Payload)
		}
		p.mu.Unlock()
		if over {
			select {
			case <-p.flooded:
			default:
				close(p.flooded)
			}
			return
		}
		select {
		case p.more <- struct{}{}:
		default:
		}
	case wire.Exit:
		var e wire.Ended
		err := f.Decode(&e)
		p.m.mu.Lock()
		delete(p.m.jobs, p.id)
		p.m.mu.Unlock()
		p.once.Do(func() {
			p.ended, p.failed = e, err
			close(p.exited)
		})
	}
}

// finish ends the command without its exit frame.
func (p *Process) finish(err error) {
	p.m.mu.Lock()
	delete(p.m.jobs, p.id)
	p.m.mu.Unlock()
	p.once.Do(func() {
		p.failed = err
		close(p.exited)
	})
}

// follow handles the command's end: its limits, its output, its verdict.
func (p *Process) follow(ctx context.Context) {
	defer close(p.done)
	written := make(chan struct{})
	go func() {
		defer close(written)
		p.write()
	}()
	limit := time.NewTimer(p.cmd.Timeout)
	defer limit.Stop()
	var why error
	select {
	case <-p.exited:
	case <-limit.C:
		why = fmt.Errorf("%w of %v", ErrTimeout, p.cmd.Timeout)
	case <-ctx.Done():
		why = ctx.Err()
	case <-p.flooded:
		why = ErrOutput
	}
	if why != nil {
		why = errors.Join(why, p.end())
	}
	if p.failed == nil {
		select {
		case <-p.mark: // the kernel's messages are in the log
		case <-time.After(markGrace):
		case <-p.m.qemu.dead:
		}
	}
	<-written
	p.begun.Do(func() { close(p.started) })
	p.err = p.verdict(why != nil)
	// Joined only if both exist: an exit code alone stays unchanged.
	if faults := p.m.console.since(p.faults); why != nil || faults != nil {
		p.err = errors.Join(why, p.err, faults)
	}
}

// end kills the command, and makes the kernel log where it hangs if that does not help.
func (p *Process) end() error {
	if err := p.Kill(); err != nil {
		p.finish(err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(killGrace):
	}
	if err := p.m.send(wire.Frame{Kind: wire.Blocked}); err == nil {
		select {
		case <-p.exited:
		case <-time.After(stuckGrace):
		}
	}
	p.finish(ErrStuck)
	return nil
}

// verdict returns the error for the command's outcome. After a kill it returns only that the
// command did not end.
func (p *Process) verdict(killed bool) error {
	e := p.ended
	switch {
	case p.failed != nil:
		return p.failed
	case killed || e.Code == 0 && e.Signal == "" && e.Error == "":
		return nil
	}
	return &ExitError{Code: e.Code, Signal: e.Signal, Reason: e.Error}
}
