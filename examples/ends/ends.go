package ends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// defaultAddr is the address of a server that is started without one.
const defaultAddr = ":7471"

// drain is the time limit for closing a runtime.
const drain = 5 * time.Second

// Example is a program with two ends. Each end has its own runtime.
type Example struct {
	// Config configures both runtimes.
	Config verbena.Config
	// Listen makes the listener of the server. Default: rt.Listen(addr).
	Listen func(rt *verbena.Runtime, addr string) (*verbena.Listener, error)
	// Serve serves one connection of the server. After it the server waits until the client closes
	// the connection. An error of Serve is printed on w, and closes the connection.
	Serve func(ctx context.Context, w io.Writer, rt *verbena.Runtime, conn *verbena.Conn) error
	// Dial is the client. It dials addr, and closes the connection when it is done.
	Dial func(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, args []string) error
	// Args describes the args of Dial for the usage message. They follow the address on the command
	// line. Default: there are none.
	Args string
}

// Main runs the example with the arguments of the command line. After an error it ends the process
// with exit code 1.
func (x Example) Main() { main(x.Run) }

func main(run func(context.Context, io.Writer, ...string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Args[1:]...)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// Run runs the server, the client, or both, as the arguments of a command line say. The server
// ends without an error when ctx ends.
func (x Example) Run(ctx context.Context, w io.Writer, args ...string) (err error) {
	mode, addr, args, err := x.parse(args)
	if err != nil {
		return err
	}
	rt, err := verbena.Open(x.Config)
	if err != nil {
		return err
	}
	defer shut(rt, &err)
	if mode == "dial" {
		return x.Dial(ctx, w, rt, addr, args)
	}
	listen := (*verbena.Runtime).Listen
	if x.Listen != nil {
		listen = x.Listen
	}
	ln, err := listen(rt, addr)
	if err != nil {
		return err
	}
	if mode == "serve" {
		fmt.Fprintln(w, "listening at", ln.Addr())
		return x.serve(ctx, w, rt, ln)
	}
	other, err := verbena.Open(x.Config)
	if err != nil {
		return err
	}
	defer shut(other, &err)
	w = &locked{w: w}
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- x.serve(ctx, w, rt, ln) }()
	err = x.Dial(ctx, w, other, ln.Addr().String(), args)
	stop()
	return errors.Join(err, <-served)
}

// parse reads a command line. The mode is "serve", "dial" or "", which means both.
func (x Example) parse(args []string) (mode, addr string, rest []string, err error) {
	if len(args) > 0 && (args[0] == "serve" || args[0] == "dial") {
		mode, args = args[0], args[1:]
	}
	switch {
	case mode == "":
		addr = ":0" // any free port
	case len(args) > 0:
		addr, args = args[0], args[1:]
	case mode == "serve":
		addr = defaultAddr
	}
	if addr == "" || len(args) > 0 && (mode == "serve" || x.Args == "") {
		return "", "", nil, errors.New(strings.TrimSpace("usage: [serve [address] | dial address] " + x.Args))
	}
	return mode, addr, args, nil
}

// serve serves one connection after the other until ctx ends.
func (x Example) serve(ctx context.Context, w io.Writer, rt *verbena.Runtime, ln *verbena.Listener) error {
	for {
		conn, err := ln.Accept(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		if err = x.Serve(ctx, w, rt, conn); err == nil {
			select {
			case <-conn.Done():
			case <-ctx.Done():
			}
		}
		err = errors.Join(err, conn.Close(ctx))
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(w, "connection from %v: %v\n", conn.RemoteAddr(), err)
		}
	}
}

// locked is a writer that both ends may use at the same time.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// shut closes a runtime and all its objects, also after ctx ended.
func shut(rt *verbena.Runtime, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	*err = errors.Join(*err, rt.Close(ctx))
}
