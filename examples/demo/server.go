package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// server takes a file of the client, each time in the way that the client names. For each way the
// messages are:
//
//	client                server
//	way             ->
//	                <-    ready: the memory of the copy is clear
//	SENDs, WRITEs   ->    or READs of the server
//	                <-    report, one for each wave of READs, the last when all data has arrived
//	                <-    hash of the copy
func server(ctx context.Context, _ io.Writer, rt *verbena.Runtime, conn *verbena.Conn) (err error) {
	there := &end{rt: rt, conn: conn}
	if err = there.recvDescriptor(ctx); err != nil {
		return err
	}
	size := there.peer.Length
	if size == 0 || size > maxFile {
		return fmt.Errorf("a file of %d bytes, want 1 to %d", size, maxFile)
	}
	// The peer may write the copy.
	if there.file, err = rt.NewRegion(int(size), verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, there.file.Close()) }()
	if err = there.sendDescriptor(ctx); err != nil {
		return err
	}
	for {
		by, err := there.recv(ctx)
		if errors.Is(err, verbena.ErrPeerClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err = there.take(ctx, way(by)); err != nil {
			return fmt.Errorf("taking the file by %q: %w", by, err)
		}
	}
}

// take takes the file in one way.
func (e *end) take(ctx context.Context, by way) error {
	clear(e.file.Bytes())
	// Wait until it has arrived: it is not a part of the READs' statistics.
	if _, err := e.conn.Do(ctx, new(verbena.SendBytesOp([]byte("ready")))); err != nil {
		return err
	}
	done := report{Bytes: uint64(e.file.Len())}
	var err error
	switch by {
	case send, write:
		err = e.receive(ctx)
	case read:
		done, err = e.post(ctx, by, func(at int) error {
			if at == e.file.Len() { // the last report follows
				return nil
			}
			return e.sendReport(ctx, report{Bytes: uint64(at)})
		})
	default:
		err = errors.New("unknown way")
	}
	if err != nil {
		return err
	}
	if err := e.sendReport(ctx, done); err != nil {
		return err
	}
	return e.send(ctx, binary.LittleEndian.AppendUint64(nil, xxhash.Sum64(e.file.Bytes())))
}

// receive receives messages until the whole file is there.
func (e *end) receive(ctx context.Context) error {
	for got := 0; got < e.file.Len(); {
		msg, err := e.conn.RecvWait(ctx)
		if err != nil {
			return err
		}
		if msg.HasImm {
			got += msg.Written // already in its place
		} else {
			got += copy(e.file.Bytes()[got:], msg.Data)
		}
		if err := msg.Release(); err != nil {
			return err
		}
	}
	return nil
}
