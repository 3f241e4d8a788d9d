package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// drain is how long a command's output may stay open after the command and its process group have
// ended: a process that left the group may hold the pipe.
const drain = 2 * time.Second

// piece is the output in one frame: the capacity of a pipe.
const piece = 64 << 10

// job is one command, from Start to Exit.
//
//	new --(started)--> running --(ended, group killed, output read)--> gone
//	 \--(cannot be started)-----------------------------------------/
//
// A signal that comes while it is new is kept and sent once it runs.
type job struct {
	server *server
	id     uint32
	spec   wire.Spec

	mu      sync.Mutex // guards the following fields
	group   int        // its process group; 0 while new, and again when gone
	pending []unix.Signal
}

func (j *job) signal(sig unix.Signal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.group == 0 {
		j.pending = append(j.pending, sig)
		return
	}
	_ = unix.Kill(-j.group, sig) // a group that has ended needs none
}

func (j *job) run() {
	e, err := j.command()
	if err != nil {
		e = wire.Ended{Code: 127, Error: err.Error()}
	}
	j.server.end(j.id, e)
}

func (j *job) command() (e wire.Ended, err error) {
	if len(j.spec.Argv) == 0 {
		return e, errors.New("no command")
	}
	program := j.spec.Argv[0]
	if j.spec.Carry {
		dir := filepath.Join("/run/verbena", strconv.FormatUint(uint64(j.id), 10))
		defer os.RemoveAll(dir)
		if program, err = carry(program, dir); err != nil {
			return e, err
		}
	}
	cmd := exec.Command(program, j.spec.Argv[1:]...)
	cmd.Dir = j.spec.Dir
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	for k, v := range j.server.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Env = append(cmd.Env, j.spec.Env...) // the last of a name counts
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	outR, outW, err := os.Pipe()
	if err != nil {
		return e, err
	}
	defer outR.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		_ = outW.Close() // the failure is reported already
		return e, err
	}
	defer errR.Close()
	cmd.Stdout, cmd.Stderr = outW, errW
	err = cmd.Start()
	// The command has copies of these; the readers see the end when it is over.
	_, _ = outW.Close(), errW.Close()
	if err != nil {
		return e, err
	}
	j.mu.Lock()
	j.group = cmd.Process.Pid
	for _, sig := range j.pending {
		_ = unix.Kill(-j.group, sig)
	}
	j.mu.Unlock()
	pid := strconv.Itoa(cmd.Process.Pid)
	_ = j.server.send(wire.Frame{Kind: wire.Started, Job: j.id, Payload: []byte(pid)})

	var readers sync.WaitGroup
	readers.Go(func() { j.copy(outR, wire.Stdout) })
	readers.Go(func() { j.copy(errR, wire.Stderr) })
	err = cmd.Wait()
	j.mu.Lock()
	_ = unix.Kill(-j.group, unix.SIGKILL) // processes that it left behind
	j.group = 0
	j.mu.Unlock()
	late := time.Now().Add(drain)
	if err := errors.Join(outR.SetReadDeadline(late), errR.SetReadDeadline(late)); err != nil {
		return e, err
	}
	readers.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return e, err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	e.Code = status.ExitStatus()
	if status.Signaled() {
		e.Code = 128 + int(status.Signal())
		e.Signal = status.Signal().String()
	}
	return e, nil
}

// copy sends the output from r until its end or its deadline.
func (j *job) copy(r io.Reader, kind wire.Kind) {
	buf := make([]byte, piece)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := j.server.send(wire.Frame{Kind: kind, Job: j.id, Payload: buf[:n]}); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// carry copies a program into dir.
func carry(program, dir string) (string, error) {
	in, err := os.Open(program)
	if err != nil {
		return "", fmt.Errorf("carrying the program in: %w", err)
	}
	defer in.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(program))
	// A concurrently forked child would have the file open for writing until it executes, and the
	// program could not be executed (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	return to, errors.Join(err, out.Close())
}
