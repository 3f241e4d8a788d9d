// Command 06-talk-to-a-c-program plays ibv_rc_pingpong of rdma-core.
//
//	06-talk-to-a-c-program                    both sides in this process
//	06-talk-to-a-c-program serve [address]    the server, until it is interrupted
//	06-talk-to-a-c-program dial address       the client
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	args := append(os.Args[1:], "", "")
	err := run(ctx, os.Stdout, usual, args[0], args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "talk-to-a-c-program:", err)
		os.Exit(1)
	}
}

// run runs the server, the client, or both, as the mode says. Either can be ibv_rc_pingpong.
func run(ctx context.Context, w io.Writer, g game, mode, addr string) (err error) {
	rt, err := verbena.Open(verbena.Config{}) // VERBENA_DEVICE selects the device (ibv:mlx5_0)
	if err != nil {
		return err
	}
	defer shut(rt, &err)
	switch mode {
	case "dial":
		return g.client(ctx, w, rt, addr)
	case "serve":
		addr = cmp.Or(addr, ":18515") // the port of ibv_rc_pingpong
	case "":
		addr = "127.0.0.1:0"
	default:
		return fmt.Errorf("unknown mode %q, want serve or dial", mode)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serve takes HOST:PORT or :PORT, and ibv_rc_pingpong the port by -p: %w", err)
	}
	if mode == "serve" {
		fmt.Fprintln(w, "listening at", ln.Addr())
		return g.server(ctx, w, rt, ln)
	}
	other, err := verbena.Open(verbena.Config{})
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer shut(other, &err)
	ctx, stop := context.WithCancel(ctx)
	served, printed := make(chan error, 1), new(bytes.Buffer)
	go func() { served <- g.server(ctx, printed, rt, ln) }()
	err = g.client(ctx, w, other, ln.Addr().String())
	stop()
	if err = errors.Join(err, <-served); err != nil {
		fmt.Fprint(w, printed)
	}
	return err
}

// server plays with one client after the other until ctx ends.
func (g game) server(ctx context.Context, w io.Writer, rt *verbena.Runtime, ln net.Listener) error {
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) { // ctx has ended
			return nil
		}
		if err != nil {
			return err
		}
		if err := g.play(ctx, w, rt, nc, false); err != nil && ctx.Err() == nil {
			fmt.Fprintf(w, "connection from %v: %v\n", nc.RemoteAddr(), err)
		}
	}
}

func (g game) client(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string) error {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("dial takes HOST:PORT of a server that was started before: %w", err)
	}
	return g.play(ctx, w, rt, nc, true)
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
