// Command 04-move-a-file moves a file with many operations outstanding.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/futures"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	chunk   = 64 << 10 // bytes that one operation moves
	depth   = 64       // operations of a wave
	maxFile = 1 << 28  // bytes; the whole file is kept in memory
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Args[len(os.Args)-1]) // without an argument: this program itself
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "move-a-file:", err)
		os.Exit(1)
	}
}

// run moves the file at path into the memory of a server.
func run(ctx context.Context, w io.Writer, path string) (err error) {
	info, err := os.Stat(path) // before reading, because opening a pipe waits for a writer
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > maxFile {
		return fmt.Errorf("%s is no regular file of 1 to %d bytes", path, maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
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
	target, err := server.NewRegion(len(data), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	remote, err := target.Remote(0, target.Len()) // for another process see example 02
	if err != nil {
		return err
	}
	ln, err := server.Listen(":0")
	if err != nil {
		return err
	}
	accepted, err := ln.AcceptAsync() // before the client dials: its connection is the first
	if err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() { received <- receive(ctx, accepted, target.Len()) }()
	if err = push(ctx, client, ln.Addr().String(), data, remote); err != nil {
		shut(server, &err) // the client may never have connected
	}
	if err := errors.Join(err, <-received); err != nil {
		return err
	}
	s, source, copied := client.Stats(), xxhash.Sum64(data), xxhash.Sum64(target.Bytes())
	fmt.Fprintf(w, "%d bytes, %d work requests, %d doorbells: %.1f per doorbell\n", len(data), s.WorkRequests, s.Doorbells, s.WRsPerDoorbell())
	fmt.Fprintf(w, "xxhash of source %016x, of copy %016x, equal: %t\n", source, copied, source == copied)
	if source != copied {
		return errors.New("the copy differs")
	}
	return nil
}

// push is the client: it writes data into the server's memory, wave by wave.
func push(ctx context.Context, rt *verbena.Runtime, addr string, data []byte, to verbena.Remote) (err error) {
	source, err := rt.NewRegion(len(data), verbs.AccessLocalWrite) // memory that a device reads must be registered
	if err != nil {
		return err
	}
	copy(source.Bytes(), data)
	conn, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }() // the server need not wait for more
	group, wave := new(futures.Group), make([]verbena.Future, 0, depth)
	for off := 0; off < len(data); {
		for wave = wave[:0]; len(wave) < depth && off < len(data); off += chunk {
			n := min(chunk, len(data)-off)
			from, err := source.Slice(off, n)
			if err != nil {
				return err
			}
			part, err := to.At(uint64(off), uint64(n))
			if err != nil {
				return err
			}
			written, err := conn.Start(ctx, new(verbena.WriteOp(from, part).Imm(uint32(off/chunk)))) // now outstanding
			if err != nil {
				return err
			}
			if err := futures.Add(group, written); err != nil {
				return err
			}
			wave = append(wave, written)
		}
		if err := group.Wait(ctx); err != nil { // for the whole wave, with one wake-up
			return err
		}
		for _, f := range wave {
			if _, err, _ := f.Poll(); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive is the server: it is notified of each chunk, and copies nothing.
func receive(ctx context.Context, accepted futures.Future[*verbena.Conn], size int) error {
	conn, err := accepted.Await(ctx)
	if err != nil {
		return fmt.Errorf("accepting: %w", err)
	}
	for got := 0; got < size; {
		msg, err := conn.RecvWait(ctx)
		if err == nil {
			got += msg.Written
			err = msg.Release()
		}
		if err != nil {
			conn.Abort() // the client may wait for the server
			return fmt.Errorf("after %d of %d bytes: %w", got, size, err)
		}
	}
	return nil // the client closes the connection, or its runtime does
}

// shut closes a runtime and all its objects, also after ctx ended.
func shut(rt *verbena.Runtime, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	*err = errors.Join(*err, rt.Close(ctx))
}
