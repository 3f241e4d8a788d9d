// Command 06-send-with-immediate sends a message with a number.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/runtime/rpma"
	"github.com/verbena-rdma/verbena/verbs"
)

const size = 64

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// server receives two messages. It posts both receives before the client can send.
func server(ctx context.Context, w io.Writer, p *rpma.Peer, ep *rpma.Endpoint) (err error) {
	in, err := p.NewMR(2*size, rpma.RecvBuf)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, in.Close)
	req, err := ep.NextConnReq(ctx, nil)
	if err != nil {
		return err
	}
	for i := range 2 {
		ends.Undo(&err, func() error { return req.Recv(in, i*size, size, uint64(i)) })
	}
	if err != nil {
		ends.Undo(&err, func() error { return req.Close(ctx) })
		return err
	}
	conn, err := ends.Connect(ctx, req, nil)
	if err != nil {
		return err
	}
	defer ends.HangUp(ctx, conn, true, &err)
	for range 2 {
		wc, err := ends.Completion(ctx, conn.CQ())
		if err != nil {
			return err
		}
		text := in.Bytes()[wc.Context*size:][:wc.Bytes] // the word says which receive the message took
		if wc.Flags&verbs.WCWithImm != 0 {
			fmt.Fprintf(w, "server: received %q with the number %d\n", text, wc.Imm)
		} else {
			fmt.Fprintf(w, "server: received %q\n", text)
		}
	}
	return nil
}

// client sends one message without a number and one with it.
func client(ctx context.Context, _ io.Writer, p *rpma.Peer, host, port string) (err error) {
	out, err := p.NewMR(size, rpma.SendBuf)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, out.Close)
	n := copy(out.Bytes(), "a message")
	conn, err := ends.Request(ctx, p, host, port, nil, nil)
	if err != nil {
		return err
	}
	defer ends.HangUp(ctx, conn, false, &err)
	if err = conn.Send(out, 0, n, rpma.CompletionOnError, 1); err != nil {
		return err
	}
	if err = conn.SendWithImm(out, 0, n, rpma.CompletionAlways, 1234, 2); err != nil { // host order at both ends
		return err
	}
	_, err = ends.Completion(ctx, conn.CQ())
	return err
}
