// Command 04-move-a-file moves a file with many operations outstanding.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/futures"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	chunk   = 64 << 10 // bytes that one operation moves
	depth   = 64       // operations of a wave
	maxFile = 1 << 28  // bytes; the whole file is kept in memory
)

var example = ends.Example{Serve: server, Dial: client, Args: "[path]"}

func main() { example.Main() }

// client moves a file into the memory of the server; without a path, this program itself.
func client(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, args []string) (err error) {
	path := os.Args[0]
	if len(args) > 0 {
		path = args[0]
	}
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
	source, err := rt.NewRegion(len(data), verbs.AccessLocalWrite) // memory that a device reads must be registered
	if err != nil {
		return err
	}
	copy(source.Bytes(), data)
	// The server learns the size from the connection request, and answers with a descriptor.
	conn, err := rt.DialOptions(ctx, addr, verbena.Options{PrivateData: binary.LittleEndian.AppendUint64(nil, uint64(len(data)))})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	msg, err := conn.RecvWait(ctx)
	if err != nil {
		return err
	}
	var target verbena.Remote
	err = target.UnmarshalBinary(msg.Data) // it comes from the peer and is untrusted
	if err := errors.Join(err, msg.Release()); err != nil {
		return err
	}
	if err := push(ctx, conn, source, target); err != nil {
		return err
	}
	s := rt.Stats()
	fmt.Fprintf(w, "%d bytes, %d work requests, %d doorbells: %.1f per doorbell\n", len(data), s.WorkRequests, s.Doorbells, s.WRsPerDoorbell())
	if msg, err = conn.RecvWait(ctx); err != nil { // the hash of the copy
		return err
	}
	hash, copied := fmt.Sprintf("%016x", xxhash.Sum64(data)), string(msg.Data)
	fmt.Fprintf(w, "xxhash of source %s, of copy %s, equal: %t\n", hash, copied, hash == copied)
	if hash != copied {
		err = errors.New("the copy differs")
	}
	return errors.Join(err, msg.Release())
}

// push writes the source into the server's memory, wave by wave.
func push(ctx context.Context, conn *verbena.Conn, source *verbena.Region, target verbena.Remote) error {
	group, wave := new(futures.Group), make([]verbena.Future, 0, depth)
	batch := conn.Batch() // starts without a wake-up of the reactor: the wait below posts the wave
	for off := 0; off < source.Len(); {
		for wave = wave[:0]; len(wave) < depth && off < source.Len(); off += chunk {
			n := min(chunk, source.Len()-off)
			from, err := source.Slice(off, n)
			if err != nil {
				return err
			}
			to, err := target.At(uint64(off), uint64(n))
			if err != nil {
				return err
			}
			written, err := batch.Start(ctx, new(verbena.WriteOp(from, to).Imm(uint32(off/chunk)))) // now outstanding
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

// server registers memory for the file of a client.
func server(ctx context.Context, _ io.Writer, rt *verbena.Runtime, conn *verbena.Conn) (err error) {
	var size uint64
	if _, err := binary.Decode(conn.PrivateData(), binary.LittleEndian, &size); err != nil {
		return err
	}
	if size == 0 || size > maxFile {
		return fmt.Errorf("a file of %d bytes, want 1 to %d", size, maxFile)
	}
	target, err := rt.NewRegion(int(size), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	remote, err := target.Remote(0, target.Len())
	if err != nil {
		return err
	}
	return receive(ctx, conn, target, remote)
}

// receive sends the descriptor to the client. It is notified of each chunk, and copies nothing.
func receive(ctx context.Context, conn *verbena.Conn, target *verbena.Region, remote verbena.Remote) error {
	descriptor, err := remote.MarshalBinary()
	if err != nil {
		return err
	}
	if _, err := conn.Do(ctx, new(verbena.SendBytesOp(descriptor))); err != nil {
		return err
	}
	for got := 0; got < target.Len(); {
		msg, err := conn.RecvWait(ctx)
		if err == nil {
			got += msg.Written
			err = msg.Release()
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", got, target.Len(), err)
		}
	}
	answer, err := conn.SendBytes(ctx, fmt.Appendf(nil, "%016x", xxhash.Sum64(target.Bytes())))
	answer.Discard() // the client may close before its device acknowledges the answer
	return err
}
