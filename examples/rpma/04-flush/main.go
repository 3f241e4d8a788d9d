// Command 04-flush appends records to the memory of a server, so that the server sees whole records only.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/runtime/rpma"
)

const (
	head    = 8 // the number of records
	record  = 16
	records = 4
	size    = head + records*record
)

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// server prints what there is when the client has gone.
func server(ctx context.Context, w io.Writer, p *rpma.Peer, ep *rpma.Endpoint) (err error) {
	mr, err := p.NewMR(size, rpma.WriteDst|rpma.FlushVisibility)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, mr.Close)
	desc, err := mr.Descriptor()
	if err != nil {
		return err
	}
	conn, err := ends.Accept(ctx, ep, nil, desc[:])
	if err != nil {
		return err
	}
	if ends.HangUp(ctx, conn, true, &err); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(mr.Bytes())
	for i := range min(n, records) {
		fmt.Fprintf(w, "server: record %q\n", mr.Bytes()[head+i*record:][:record])
	}
	return nil
}

// client appends.
func client(ctx context.Context, w io.Writer, p *rpma.Peer, host, port string) (err error) {
	src, err := p.NewMR(record, rpma.WriteSrc)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, src.Close)
	conn, err := ends.Request(ctx, p, host, port, nil, nil)
	if err != nil {
		return err
	}
	defer ends.HangUp(ctx, conn, false, &err)
	dst, err := rpma.ParseRemoteMR(conn.PrivateData())
	if err != nil {
		return err
	}
	for i := range records {
		copy(src.Bytes(), fmt.Sprintf("record number %2d", i))
		if err = appendTo(ctx, conn, dst, src, i); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "client: appended %d records\n", records)
	return nil
}

// appendTo appends record i: its bytes, then the number of records. Each is flushed before the next step, so that the
// number never counts a record that is not there. On persistent memory, and with rpma.Persistent, that holds
// for a server that loses power, too. The device gets the four operations together (More).
func appendTo(ctx context.Context, conn *rpma.Conn, dst *rpma.RemoteMR, src *rpma.MR, i int) error {
	at := head + i*record
	if err := conn.Write(dst, at, src, 0, record, rpma.CompletionOnError|rpma.More, 0); err != nil {
		return err
	}
	if err := conn.Flush(dst, at, record, rpma.Visibility, rpma.CompletionOnError|rpma.More, 0); err != nil {
		return err
	}
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], uint64(i+1))
	if err := conn.AtomicWrite(dst, 0, number, rpma.CompletionOnError|rpma.More, 0); err != nil { // after the flush
		return err
	}
	if err := conn.Flush(dst, 0, head, rpma.Visibility, rpma.CompletionAlways, 0); err != nil {
		return err
	}
	_, err := ends.Completion(ctx, conn.CQ()) // the record is appended
	return err
}
