// Command 08-shared-receive-queue has connections share their receives.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/runtime/rpma"
)

const (
	clients  = 3
	messages = 2 // of each
	receives = 2 // for all of them
	size     = 32
)

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// server takes the messages of all connections from one CQ, that of the SRQ.
func server(ctx context.Context, w io.Writer, p *rpma.Peer, ep *rpma.Endpoint) (err error) {
	in, err := p.NewMR(receives*size, rpma.RecvBuf)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, in.Close)
	srq, err := p.NewSRQ(&rpma.SRQConfig{RQSize: receives})
	if err != nil {
		return err
	}
	defer ends.Undo(&err, srq.Close)
	post := func(i uint64) error { return srq.Recv(in, int(i)*size, size, i) }
	for i := range uint64(receives) {
		if err = post(i); err != nil {
			return err
		}
	}
	of := map[uint32]int{} // the connections by the numbers of their queue pairs
	for i := range clients {
		conn, err := ends.Accept(ctx, ep, &rpma.ConnConfig{SRQ: srq}, nil)
		if err != nil {
			return err
		}
		defer ends.HangUp(ctx, conn, true, &err)
		of[conn.QPNum()] = i
	}
	counts := [clients]int{}
	for range clients * messages {
		wc, err := ends.Completion(ctx, srq.RCQ())
		if err != nil {
			return err
		}
		counts[of[wc.QPNum]]++
		if err = post(wc.Context); err != nil { // the receive that the message took, again
			return err
		}
	}
	fmt.Fprintf(w, "server: received %v messages\n", counts)
	return nil
}

// client sends over several connections. Its messages wait while the server has no receive.
func client(ctx context.Context, w io.Writer, p *rpma.Peer, host, port string) (err error) {
	out, err := p.NewMR(size, rpma.SendBuf)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, out.Close)
	n := copy(out.Bytes(), "one of many")
	var conns []*rpma.Conn
	for range clients {
		conn, err := ends.Request(ctx, p, host, port, nil, nil)
		if err != nil {
			return err
		}
		defer ends.HangUp(ctx, conn, false, &err)
		conns = append(conns, conn)
	}
	for range messages {
		for _, conn := range conns {
			if err = conn.Send(out, 0, n, rpma.CompletionAlways, 1); err != nil {
				return err
			}
		}
	}
	for range messages {
		for _, conn := range conns {
			if _, err = ends.Completion(ctx, conn.CQ()); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(w, "client: sent %d messages over each of %d connections\n", messages, clients)
	return nil
}
