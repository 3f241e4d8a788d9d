// Command 02-read reads the memory of a server.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/runtime/rpma"
)

const size = 64

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// server gives the client the descriptor of its memory, and has nothing else to do.
func server(ctx context.Context, _ io.Writer, p *rpma.Peer, ep *rpma.Endpoint) (err error) {
	mr, err := p.NewMR(size, rpma.ReadSrc)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, mr.Close)
	copy(mr.Bytes(), "the memory of the server")
	desc, err := mr.Descriptor()
	if err != nil {
		return err
	}
	conn, err := ends.Accept(ctx, ep, nil, desc[:])
	if err != nil {
		return err
	}
	ends.HangUp(ctx, conn, true, &err)
	return err
}

// client reads.
func client(ctx context.Context, w io.Writer, p *rpma.Peer, host, port string) (err error) {
	dst, err := p.NewMR(size, rpma.ReadDst)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, dst.Close)
	conn, err := ends.Request(ctx, p, host, port, nil, nil)
	if err != nil {
		return err
	}
	defer ends.HangUp(ctx, conn, false, &err)
	src, err := rpma.ParseRemoteMR(conn.PrivateData()) // it comes from the peer and is untrusted
	if err != nil {
		return err
	}
	if src.Size() > size {
		return fmt.Errorf("the server has %d bytes", src.Size())
	}
	if err = conn.Read(dst, 0, src, 0, int(src.Size()), rpma.CompletionAlways, 1); err != nil {
		return err
	}
	if _, err = ends.Completion(ctx, conn.CQ()); err != nil {
		return err
	}
	fmt.Fprintf(w, "client: read %q\n", bytes.TrimRight(dst.Bytes(), "\x00"))
	return nil
}
