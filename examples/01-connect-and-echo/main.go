// Command 01-connect-and-echo connects a client to a server, which echoes its messages.
//
//	01-connect-and-echo                    both in this process
//	01-connect-and-echo serve [address]    the server, until it is interrupted
//	01-connect-and-echo dial address       the client
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// drain is the time limit for closing.
const drain = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	args := append(os.Args[1:], "", "")
	err := run(ctx, os.Stdout, args[0], args[1], "hello", "is anybody there?", "goodbye")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect-and-echo:", err)
		os.Exit(1)
	}
}

// run runs the server, the client, or both, as the mode says. The client sends the lines.
func run(ctx context.Context, w io.Writer, mode, addr string, lines ...string) (err error) {
	// On the software RNIC, or on the device that VERBENA_DEVICE names.
	rt, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(rt, &err)
	switch mode {
	case "dial":
		return client(ctx, w, rt, addr, lines)
	case "serve":
		addr = cmp.Or(addr, ":7471")
	case "":
		addr = ":0" // any free port
	default:
		return fmt.Errorf("unknown mode %q, want serve or dial", mode)
	}
	ln, err := rt.Listen(addr)
	if err != nil {
		return err
	}
	if mode == "serve" {
		fmt.Fprintln(w, "listening at", ln.Addr())
		return server(ctx, w, ln)
	}
	other, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(other, &err)
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server(ctx, w, ln) }()
	err = client(ctx, w, other, ln.Addr().String(), lines)
	stop()
	return errors.Join(err, <-served)
}

// client connects, sends the lines, and prints the answers.
func client(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, lines []string) (err error) {
	conn, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	fmt.Fprintf(w, "connected over %s, messages of up to %d bytes\n", rt.Device().Name, conn.MaxMessage())
	for _, line := range lines {
		sent, err := conn.SendBytes(ctx, []byte(line))
		if err != nil {
			return err
		}
		msg, err := conn.RecvWait(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "said %q, heard %q\n", line, msg.Data)
		if err := msg.Release(); err != nil { // after this msg.Data is no longer ours
			return err
		}
		if _, err := sent.Await(ctx); err != nil { // already complete: it was answered
			return err
		}
	}
	return nil
}

// server serves one connection after the other until ctx ends.
func server(ctx context.Context, w io.Writer, ln *verbena.Listener) error {
	for {
		conn, err := ln.Accept(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := echo(ctx, conn); err != nil && ctx.Err() == nil {
			fmt.Fprintf(w, "connection from %v: %v\n", conn.RemoteAddr(), err)
		}
	}
}

// echo sends the messages of the peer back until the peer closes.
func echo(ctx context.Context, conn *verbena.Conn) (err error) {
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for {
		msg, err := conn.RecvWait(ctx)
		if errors.Is(err, verbena.ErrPeerClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		sent, err := conn.SendBytes(ctx, msg.Data) // sends a copy, so msg can be released
		if err != nil {
			return err
		}
		sent.Discard() // if it fails the connection fails too, and RecvWait returns that
		if err := msg.Release(); err != nil {
			return err
		}
	}
}

// shut closes a runtime and all its objects, also after ctx ended.
func shut(rt *verbena.Runtime, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	*err = errors.Join(*err, rt.Close(ctx))
}
