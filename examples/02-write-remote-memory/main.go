// Command 02-write-remote-memory writes into the memory of a peer, whose CPU takes no part.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	boardSize = 256
	done      = 42              // the immediate value that announces the end of the writes
	drain     = 5 * time.Second // time limit for closing
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, "written by the client, ", "without the server's help")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "write-remote-memory:", err)
		os.Exit(1)
	}
}

// run writes the texts into a server's memory, one after the other.
func run(ctx context.Context, w io.Writer, texts ...string) (err error) {
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

	// The board: peers may write it, but not read it.
	board, err := server.NewRegion(boardSize, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	remote, err := board.Remote(0, board.Len())
	if err != nil {
		return err
	}
	// A client gets its descriptor, address and key, when it is accepted.
	descriptor, err := remote.MarshalBinary()
	if err != nil {
		return err
	}
	ln, err := server.ListenOptions(":0", verbena.Options{PrivateData: descriptor})
	if err != nil {
		return err
	}
	accepted, err := ln.AcceptAsync()
	if err != nil {
		return err
	}
	conn, err := client.Dial(ctx, ln.Addr().String())
	if err != nil {
		accepted.Discard()
		return err
	}
	if err := put(ctx, w, client, conn, texts); err != nil {
		accepted.Discard() // the connection is closed with its runtime
		return err
	}

	// The server's part: accept, and wait for the immediate.
	served, err := accepted.Await(ctx)
	if err != nil {
		return err
	}
	msg, err := served.RecvWait(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "server: told %d, the board says %q\n", msg.Imm, bytes.TrimRight(board.Bytes(), "\x00"))
	return msg.Release()
}

// put is the client: it writes the texts into the memory of the descriptor.
func put(ctx context.Context, w io.Writer, rt *verbena.Runtime, conn *verbena.Conn, texts []string) error {
	var board verbena.Remote
	if err := board.UnmarshalBinary(conn.PrivateData()); err != nil { // it comes from the peer and is untrusted
		return err
	}
	fmt.Fprintf(w, "client: may write %d bytes of the server\n", board.Length)
	buf, err := rt.Alloc(boardSize) // memory that a device reads must be registered
	if err != nil {
		return err
	}
	defer buf.Release() // the device keeps it while operations are outstanding
	at := 0
	for i, text := range texts {
		if len(text) > boardSize-at {
			return fmt.Errorf("%q does not fit: %d bytes are left on the board", text, boardSize-at)
		}
		copy(buf.Bytes()[at:], text)
		from, err := buf.Slice().Sub(at, len(text))
		if err != nil {
			return err
		}
		to, err := board.At(uint64(at), uint64(len(text)))
		if err != nil {
			return err
		}
		at += len(text)
		write := verbena.WriteOp(from, to)
		if i == len(texts)-1 { // the last one notifies the server: all earlier data is there, too
			write = write.Imm(done)
		}
		if _, err := conn.Do(ctx, &write); err != nil {
			return err
		}
	}
	// The board cannot be read: the call is refused before anything is sent.
	_, err = conn.Read(ctx, buf.Slice(), board)
	if !errors.Is(err, verbena.ErrPermission) {
		return fmt.Errorf("reading the board was not refused: %w", err)
	}
	fmt.Fprintf(w, "client: reading is refused: %v\n", err)
	return nil
}

// shut closes a runtime and all its objects, also after ctx ended.
func shut(rt *verbena.Runtime, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	*err = errors.Join(*err, rt.Close(ctx))
}
