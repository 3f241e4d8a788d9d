// Command 09-shared-channel waits for both completion queues of a connection at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/runtime/rpma"
)

const size = 32

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// server answers a message. Its receives complete to a CQ of their own, which has the completion channel of the other.
func server(ctx context.Context, w io.Writer, p *rpma.Peer, ep *rpma.Endpoint) (err error) {
	mr, err := p.NewMR(2*size, rpma.RecvBuf|rpma.SendBuf)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, mr.Close)
	req, err := ep.NextConnReq(ctx, &rpma.ConnConfig{RCQSize: 1, SharedChannel: true})
	if err != nil {
		return err
	}
	if err = req.Recv(mr, 0, size, 1); err != nil { // before the client can send
		ends.Undo(&err, func() error { return req.Close(ctx) })
		return err
	}
	conn, err := ends.Connect(ctx, req, nil)
	if err != nil {
		return err
	}
	defer ends.HangUp(ctx, conn, true, &err)
	var wc [1]rpma.WC
	for received, answered := false, false; !received || !answered; {
		cq, isReceive, err := conn.Wait(ctx)
		if err != nil {
			return err
		}
		switch _, err = cq.GetWC(wc[:]); {
		case errors.Is(err, rpma.ErrNoCompletion): // may happen
			continue
		case err != nil || wc[0].Err() != nil:
			return errors.Join(err, wc[0].Err())
		case isReceive:
			received = true
			fmt.Fprintf(w, "server: received %q\n", mr.Bytes()[:wc[0].Bytes])
			n := copy(mr.Bytes()[size:], "an answer")
			if err = conn.Send(mr, size, n, rpma.CompletionAlways, 2); err != nil {
				return err
			}
		default:
			answered = true
			fmt.Fprintln(w, "server: the answer has arrived")
		}
	}
	return nil
}

// client sends a message and waits for the answer, which may come before the completion of the message.
func client(ctx context.Context, w io.Writer, p *rpma.Peer, host, port string) (err error) {
	mr, err := p.NewMR(2*size, rpma.RecvBuf|rpma.SendBuf)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, mr.Close)
	conn, err := ends.Request(ctx, p, host, port, &rpma.ConnConfig{RCQSize: 1}, nil)
	if err != nil {
		return err
	}
	defer ends.HangUp(ctx, conn, false, &err)
	if err = conn.Recv(mr, 0, size, 1); err != nil {
		return err
	}
	n := copy(mr.Bytes()[size:], "a message")
	if err = conn.Send(mr, size, n, rpma.CompletionAlways, 2); err != nil {
		return err
	}
	if _, err = ends.Completion(ctx, conn.CQ()); err != nil {
		return err
	}
	wc, err := ends.Completion(ctx, conn.RCQ())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "client: received %q\n", mr.Bytes()[:wc.Bytes])
	return nil
}
