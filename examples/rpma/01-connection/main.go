// Command 01-connection connects a client and a server with private data.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/runtime/rpma"
)

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// server sees what the client says before it accepts the request.
func server(ctx context.Context, w io.Writer, _ *rpma.Peer, ep *rpma.Endpoint) (err error) {
	req, err := ep.NextConnReq(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "server: a request says %q\n", bytes.TrimRight(req.PrivateData(), "\x00"))
	conn, err := ends.Connect(ctx, req, []byte("hello, client")) // req.Close would refuse it
	if err != nil {
		return err
	}
	ends.HangUp(ctx, conn, true, &err)
	return err
}

// client connects, and disconnects.
func client(ctx context.Context, w io.Writer, p *rpma.Peer, host, port string) (err error) {
	req, err := p.NewConnReq(ctx, host, port, nil) // with the defaults of librpma
	if err != nil {
		return err
	}
	conn, err := req.Connect([]byte("hello, server"))
	if err != nil {
		return err
	}
	event, err := conn.NextEvent(ctx) // the outcome: Established, Rejected or Unreachable
	if err == nil {
		fmt.Fprintf(w, "client: %v, the answer says %q\n", event, bytes.TrimRight(conn.PrivateData(), "\x00"))
	}
	ends.HangUp(ctx, conn, false, &err)
	return err
}
