// Command 06-talk-to-a-c-program plays ibv_rc_pingpong of rdma-core.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

type game struct{ size, rounds int }       // parameters that both ends must agree on
var usual = game{size: 4096, rounds: 1000} // ibv_rc_pingpong's

func main() {
	serveAt := flag.String("serve", "", "be the server of ibv_rc_pingpong at this TCP `address` (:18515)")
	connectTo := flag.String("connect", "", "be the client of ibv_rc_pingpong at this TCP `address` (host:18515)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, usual, *serveAt, *connectTo)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "talk-to-a-c-program:", err)
		os.Exit(1)
	}
}

func both(ctx context.Context, w io.Writer, g game) (err error) {
	server, err := verbena.Open(verbena.Config{}) // VERBENA_DEVICE selects the device (ibv:mlx5_0)
	if err != nil {
		return err
	}
	defer shut(server, &err)
	client, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(client, &err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- g.serve(ctx, io.Discard, server, ln) }()
	if err = g.connect(ctx, w, client, ln.Addr().String()); err != nil {
		cancel() // the client may never have connected
	}
	return errors.Join(err, <-served)
}

// run plays one side, or both.
func run(ctx context.Context, w io.Writer, g game, serveAt, connectTo string) (err error) {
	if serveAt == "" && connectTo == "" {
		return both(ctx, w, g)
	}
	rt, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(rt, &err)
	if connectTo != "" {
		return g.connect(ctx, w, rt, connectTo)
	}
	ln, err := net.Listen("tcp", serveAt)
	if err == nil {
		return g.serve(ctx, w, rt, ln)
	}
	return fmt.Errorf("-serve takes HOST:PORT or :PORT, and ibv_rc_pingpong the port by -p: %w", err)
}

func (g game) serve(ctx context.Context, w io.Writer, rt *verbena.Runtime, ln net.Listener) error {
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	nc, err := ln.Accept()
	if err != nil {
		return err
	}
	return g.play(ctx, w, rt, nc, false)
}

func (g game) connect(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string) error {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err == nil {
		return g.play(ctx, w, rt, nc, true)
	}
	return fmt.Errorf("-connect takes HOST:PORT of a server that was started before: %w", err)
}

// play posts its receive before the other side gets its address.
func (g game) play(ctx context.Context, w io.Writer, rt *verbena.Runtime, nc net.Conn, client bool) (err error) {
	defer nc.Close()
	buf, err := rt.Alloc(g.size)
	if err != nil {
		return err
	}
	defer buf.Release()
	memory := buf.Slice() // the buffer for receives and sends, as in the C program
	prepared, err := rt.Prepare(verbena.PlainOptions{})
	if err != nil {
		return err
	}
	defer prepared.Close(ctx) // for the case that it does not become a connection
	join := prepared.Accept
	if client {
		join = prepared.Dial
	}
	next, err := prepared.PostRecv(memory)
	if err != nil {
		return err
	}
	conn, err := join(ctx, nc) // one line of text in each direction
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }() // after the sends have completed
	for left := g.rounds; left > 0; left-- {
		if client {
			_, err = conn.Do(ctx, new(verbena.SendOp(memory)))
		}
		if err == nil {
			_, err = next.Await(ctx)
		}
		if err == nil && left > 1 {
			next, err = conn.PostRecv(memory)
		}
		if err == nil && !client {
			_, err = conn.Do(ctx, new(verbena.SendOp(memory)))
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "%d exchanges of %d bytes with %v\n", g.rounds, g.size, conn.RemoteAddr().Addr())
	return nil
}

func shut(rt *verbena.Runtime, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	*err = errors.Join(*err, rt.Close(ctx))
}
