// Command 03-write writes to the memory of a server, and tells the server with the last write.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/runtime/rpma"
)

const size = 64

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// server waits for the number that comes with a write: the length of all writes.
func server(ctx context.Context, w io.Writer, p *rpma.Peer, ep *rpma.Endpoint) (err error) {
	mr, err := p.NewMR(size, rpma.WriteDst|rpma.RecvBuf)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, mr.Close)
	desc, err := mr.Descriptor()
	if err != nil {
		return err
	}
	req, err := ep.NextConnReq(ctx, nil)
	if err != nil {
		return err
	}
	if err = req.Recv(mr, 0, 0, 1); err != nil { // the write consumes a receive, of no bytes
		ends.Undo(&err, func() error { return req.Close(ctx) })
		return err
	}
	conn, err := ends.Connect(ctx, req, desc[:])
	if err != nil {
		return err
	}
	defer ends.HangUp(ctx, conn, true, &err)
	wc, err := ends.Completion(ctx, conn.CQ())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "server: the client wrote %q\n", mr.Bytes()[:min(wc.Imm, size)])
	return nil
}

// client writes two texts. The first has a completion only if it fails.
func client(ctx context.Context, _ io.Writer, p *rpma.Peer, host, port string) (err error) {
	src, err := p.NewMR(size, rpma.WriteSrc)
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
	first := copy(src.Bytes(), "written without the server, ")
	n := first + copy(src.Bytes()[first:], "but not unnoticed")
	if err = conn.Write(dst, 0, src, 0, first, rpma.CompletionOnError, 1); err != nil {
		return err
	}
	if err = conn.WriteWithImm(dst, first, src, first, n-first, rpma.CompletionAlways, uint32(n), 2); err != nil {
		return err
	}
	_, err = ends.Completion(ctx, conn.CQ()) // of the second write, or of the first if that failed
	return err
}
