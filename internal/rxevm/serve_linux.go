package rxevm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// SocketVar is the environment variable with the socket of a machine that [Machine.Serve] serves.
const SocketVar = "VERBENA_RXEVM"

// socketName is the socket in the machine's folder, beside shareName, the folder shared with the
// machine.
const (
	socketName = "socket"
	shareName  = "share"
)

// servedTime bounds a command that comes over the socket without a limit of its own: go test has
// one, and disconnects when it is over.
const servedTime = 2 * time.Hour

// failedCode is the exit code of a command that failed for another reason than its own exit.
const failedCode = 125

// Serve lets other processes of this host run commands in the machine, over a socket whose name
// it returns: one connection for each command, which is killed when its connection ends. It
// serves until stop is called, which blocks until all those commands have ended.
func (m *Machine) Serve() (socket string, stop func(), err error) {
	socket = filepath.Join(m.dir, socketName)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return "", nil, fmt.Errorf("rxevm: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			wg.Go(func() {
				defer conn.Close()
				m.attend(ctx, conn)
			})
		}
	})
	return socket, func() {
		cancel()
		_ = l.Close() // Accept ends
		wg.Wait()
	}, nil
}

// attend runs the one command of a connection.
func (m *Machine) attend(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // unblocks readers and writers
	var mu sync.Mutex                                       // guards writes to conn
	send := func(kind wire.Kind, payload []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return wire.Write(conn, wire.Frame{Kind: kind, Payload: payload})
	}
	in := bufio.NewReader(conn)
	f, err := wire.Read(in)
	var spec wire.Spec
	if err != nil || f.Kind != wire.Start || f.Decode(&spec) != nil {
		return
	}
	p, err := m.Start(ctx, Cmd{Argv: spec.Argv, Env: spec.Env, Dir: spec.Dir, Carry: spec.Carry, Timeout: servedTime,
		Stdout: writer(func(b []byte) error { return send(wire.Stdout, b) }),
		Stderr: writer(func(b []byte) error { return send(wire.Stderr, b) })})
	if err == nil {
		go func() {
			defer cancel() // the client has disconnected: end its command
			for {
				f, err := wire.Read(in)
				if err != nil {
					return
				}
				if f.Kind == wire.Signal && len(f.Payload) == 1 {
					_ = p.Signal(syscall.Signal(f.Payload[0])) // an ended command needs none
				}
			}
		}()
		err = p.Wait()
	}
	mu.Lock()
	defer mu.Unlock()
	_ = wire.WriteJSON(conn, wire.Exit, 0, ended(err)) // a client that has disconnected needs none
}

// writer is an io.Writer from a function.
type writer func([]byte) error

// Write implements io.Writer.
func (w writer) Write(b []byte) (int, error) {
	if err := w(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// ended converts the error of a command for the wire.
func ended(err error) wire.Ended {
	var exit *ExitError
	var kernel *KernelError
	switch {
	case err == nil:
		return wire.Ended{}
	case errors.As(err, &kernel):
		return wire.Ended{Code: failedCode, Error: err.Error() + "\n" + tail(kernel.Log, logTail)}
	case errors.As(err, &exit):
		return wire.Ended{Code: exit.Code, Signal: exit.Signal, Error: exit.Reason}
	}
	return wire.Ended{Code: failedCode, Error: err.Error()}
}

// Remote is a command in a machine that another process serves.
type Remote struct {
	conn net.Conn
}

// ShareOf returns the folder of the host that the machine behind the socket has as /verbena.
func ShareOf(socket string) string { return filepath.Join(filepath.Dir(socket), shareName) }

// StartRemote starts a command over the socket. It blocks until the request is
// sent. The limits and writers of cmd are not used: see [Remote.Wait].
func StartRemote(socket string, cmd Cmd) (*Remote, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("rxevm: no machine at %s=%s: %w", SocketVar, socket, err)
	}
	spec := wire.Spec{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir, Carry: cmd.Carry}
	if err := wire.WriteJSON(conn, wire.Start, 0, spec); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Remote{conn}, nil
}

// Signal sends a signal to the command's process group.
func (r *Remote) Signal(sig syscall.Signal) error {
	return wire.Write(r.conn, wire.Frame{Kind: wire.Signal, Payload: []byte{byte(sig)}})
}

// Wait writes the command's output to the two writers and returns its exit code: 125, with the
// reason, for a command that failed for another reason than its own exit. It blocks until the
// command has ended or the machine is gone, and closes the connection.
func (r *Remote) Wait(stdout, stderr io.Writer) (code int, err error) {
	defer r.conn.Close()
	in := bufio.NewReader(r.conn)
	for {
		f, err := wire.Read(in)
		if err != nil {
			return failedCode, fmt.Errorf("%w: %w", ErrLost, err)
		}
		switch f.Kind {
		case wire.Stdout:
			_, err = stdout.Write(f.Payload)
		case wire.Stderr:
			_, err = stderr.Write(f.Payload)
		case wire.Exit:
			var e wire.Ended
			if err := f.Decode(&e); err != nil {
				return failedCode, err
			}
			if e.Error != "" {
				return e.Code, errors.New(e.Error)
			}
			return e.Code, nil
		}
		if err != nil {
			return failedCode, err
		}
	}
}

// Dir returns a folder of the host that the machine has, writable, as /verbena. It is removed
// with the machine.
func (m *Machine) Dir() string { return filepath.Join(m.dir, shareName) }

// lookup checks that a folder exists: otherwise only QEMU would notice a missing share.
func lookup(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", dir)
	}
	if err != nil {
		return fmt.Errorf("rxevm: share: %w", err)
	}
	return nil
}
