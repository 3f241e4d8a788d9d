// Command 02-write-remote-memory writes into the memory of a peer, whose CPU takes no part.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	boardSize = 256
	done      = 42 // the immediate value that announces the end of the writes
)

var example = ends.Example{Serve: server, Dial: client, Args: "[text ...]"}

func main() { example.Main() }

// server lends a board to the client of the connection, and prints what the client has written.
func server(ctx context.Context, w io.Writer, rt *verbena.Runtime, conn *verbena.Conn) (err error) {
	// Peers may write the board, but not read it.
	board, err := rt.NewRegion(boardSize, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, board.Close()) }() // after this the descriptor is void
	remote, err := board.Remote(0, board.Len())
	if err != nil {
		return err
	}
	// The client gets the board's descriptor: its address, length and key.
	descriptor, err := remote.MarshalBinary()
	if err != nil {
		return err
	}
	if _, err := conn.Do(ctx, new(verbena.SendBytesOp(descriptor))); err != nil {
		return err
	}
	msg, err := conn.RecvWait(ctx) // the immediate: all writes have arrived
	if err != nil {
		return err
	}
	text := bytes.TrimRight(board.Bytes(), "\x00")
	fmt.Fprintf(w, "server: told %d, the board says %q\n", msg.Imm, text)
	if err := msg.Release(); err != nil {
		return err
	}
	answer, err := conn.SendBytes(ctx, text)
	answer.Discard() // the client may close before its device acknowledges the answer
	return err
}

// client writes the texts on the server's board, one after the other.
func client(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, texts []string) (err error) {
	if len(texts) == 0 {
		texts = []string{"written by the client, ", "without the server's help"}
	}
	conn, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	msg, err := conn.RecvWait(ctx)
	if err != nil {
		return err
	}
	var board verbena.Remote
	err = board.UnmarshalBinary(msg.Data) // it comes from the peer and is untrusted
	if err := errors.Join(err, msg.Release()); err != nil {
		return err
	}
	fmt.Fprintf(w, "client: may write %d bytes of the server\n", board.Length)
	buf, err := rt.Alloc(boardSize) // memory that a device reads must be registered
	if err != nil {
		return err
	}
	defer buf.Release() // the device keeps it while operations are outstanding
	// The board cannot be read: the call is refused before anything is sent.
	_, err = conn.Read(ctx, buf.Slice(), board)
	if !errors.Is(err, verbena.ErrPermission) {
		return fmt.Errorf("reading the board was not refused: %w", err)
	}
	fmt.Fprintf(w, "client: reading is refused: %v\n", err)
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
	msg, err = conn.RecvWait(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "client: the server has read %q\n", msg.Data)
	return msg.Release()
}
