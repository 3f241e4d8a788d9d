package ends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// TCP is a program with two ends that find each other over TCP, for example because they use no connection
// manager. The connection is closed when its function returns, or ctx ends.
type TCP struct {
	// Serve is the server's end of one connection. Its error is printed on w.
	Serve func(ctx context.Context, w io.Writer, nc net.Conn) error
	// Dial is the client.
	Dial func(ctx context.Context, w io.Writer, nc net.Conn) error
}

// Main is as that of Example.
func (x TCP) Main() { main(x.Run) }

// Run runs the server, the client, or both, as the arguments of a command line say. The server
// ends without an error when ctx ends.
func (x TCP) Run(ctx context.Context, w io.Writer, args ...string) error {
	mode, addr, _, err := Example{}.parse(args)
	if err != nil {
		return err
	}
	if mode == "dial" {
		return x.dial(ctx, w, addr)
	}
	if mode == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	if mode == "serve" {
		fmt.Fprintln(w, "listening at", ln.Addr())
		return x.serve(ctx, w, ln)
	}
	w = &locked{w: w}
	served := make(chan error, 1)
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			err = during(ctx, w, nc, x.Serve)
		}
		served <- err
	}()
	if err = x.dial(ctx, w, ln.Addr().String()); err != nil {
		_ = ln.Close() // Accept returns
	}
	return errors.Join(err, <-served)
}

func (x TCP) dial(ctx context.Context, w io.Writer, addr string) error {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return during(ctx, w, nc, x.Dial)
}

// serve serves one connection after the other until ctx ends.
func (x TCP) serve(ctx context.Context, w io.Writer, ln net.Listener) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		nc, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := during(ctx, w, nc, x.Serve); err != nil && ctx.Err() == nil {
			fmt.Fprintf(w, "connection from %v: %v\n", nc.RemoteAddr(), err)
		}
	}
}

// during calls fn and closes nc, at the latest when ctx ends.
func during(ctx context.Context, w io.Writer, nc net.Conn, fn func(context.Context, io.Writer, net.Conn) error) error {
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	return fn(ctx, w, nc)
}
