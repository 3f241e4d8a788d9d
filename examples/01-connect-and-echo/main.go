// Command 01-connect-and-echo connects two runtimes; one echoes the messages of the other.
package main

import (
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
	err := run(ctx, os.Stdout, "hello", "is anybody there?", "goodbye")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect-and-echo:", err)
		os.Exit(1)
	}
}

// run sends the lines to a server and prints its answers.
func run(ctx context.Context, w io.Writer, lines ...string) (err error) {
	// Both on one device: the first of the software RNIC, or the one named by VERBENA_DEVICE. On
	// two machines each would have its own; the rest stays the same.
	server, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(server, &err)
	client, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(client, &err)

	ln, err := server.Listen(":0") // the address of the device, any free port
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, ln) }()

	talked := talk(ctx, w, client, ln.Addr().String(), lines)
	if talked != nil {
		shut(server, &talked) // the client may never have connected
	}
	return errors.Join(talked, <-served)
}

// talk dials, sends the lines, and closes the connection.
func talk(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, lines []string) (err error) {
	conn, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	fmt.Fprintf(w, "connected over %s, messages of up to %d bytes\n", rt.Device().Name, conn.MaxMessage())
	for _, line := range lines {
		answer := conn.Recv() // a future, completed when the answer arrives
		sent, err := conn.SendBytes(ctx, []byte(line))
		if err != nil {
			return err
		}
		msg, err := answer.Await(ctx)
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

// serve accepts one connection and echoes its messages until the peer closes.
func serve(ctx context.Context, ln *verbena.Listener) (err error) {
	conn, err := ln.Accept(ctx)
	if err != nil {
		return fmt.Errorf("accepting: %w", err)
	}
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
