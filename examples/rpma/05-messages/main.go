// Command 05-messages exchanges messages.
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
	size   = 8
	rounds = 3
	// The words of the operations.
	sent, received = 1, 2
)

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// end has the memory of one end: a message to send, and one to receive.
type end struct {
	out, in *rpma.MR
	conn    *rpma.Conn
}

// talk makes the memory of an end and its connection, with a receive that is there before the peer can send, and calls fn.
func talk(ctx context.Context, p *rpma.Peer, request func() (*rpma.ConnReq, error), wait bool, fn func(*end) error) (err error) {
	var e end
	if e.out, err = p.NewMR(size, rpma.SendBuf); err != nil {
		return err
	}
	defer ends.Undo(&err, e.out.Close)
	if e.in, err = p.NewMR(size, rpma.RecvBuf); err != nil {
		return err
	}
	defer ends.Undo(&err, e.in.Close)
	req, err := request()
	if err != nil {
		return err
	}
	if err = req.Recv(e.in, 0, size, received); err != nil {
		ends.Undo(&err, func() error { return req.Close(ctx) })
		return err
	}
	if e.conn, err = ends.Connect(ctx, req, nil); err != nil {
		return err
	}
	defer ends.HangUp(ctx, e.conn, wait, &err)
	return fn(&e)
}

// send sends a number. It has a completion, which receive takes.
func (e *end) send(v uint64) error {
	binary.LittleEndian.PutUint64(e.out.Bytes(), v)
	return e.conn.Send(e.out, 0, size, rpma.CompletionAlways, sent)
}

// receive waits for the given operations, in any order, and returns the number that was received.
func (e *end) receive(ctx context.Context, words ...uint64) (uint64, error) {
	for left := len(words); left > 0; left-- {
		if _, err := ends.Completion(ctx, e.conn.CQ()); err != nil {
			return 0, err
		}
	}
	return binary.LittleEndian.Uint64(e.in.Bytes()), nil
}

// server answers each number with its successor.
func server(ctx context.Context, w io.Writer, p *rpma.Peer, ep *rpma.Endpoint) error {
	request := func() (*rpma.ConnReq, error) { return ep.NextConnReq(ctx, nil) }
	return talk(ctx, p, request, true, func(e *end) error {
		v, err := e.receive(ctx, received)
		for range rounds {
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "server: received %d\n", v)
			if err = e.conn.Recv(e.in, 0, size, received); err != nil { // before the answer: the client sends when it has it
				return err
			}
			if err = e.send(v + 1); err != nil {
				return err
			}
			if v == rounds-1 {
				_, err = e.receive(ctx, sent)
				return err
			}
			v, err = e.receive(ctx, sent, received)
		}
		return err
	})
}

// client sends numbers.
func client(ctx context.Context, w io.Writer, p *rpma.Peer, host, port string) error {
	request := func() (*rpma.ConnReq, error) { return p.NewConnReq(ctx, host, port, nil) }
	return talk(ctx, p, request, false, func(e *end) error {
		for v := range uint64(rounds) {
			if err := e.send(v); err != nil {
				return err
			}
			got, err := e.receive(ctx, sent, received)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "client: sent %d, received %d\n", v, got)
			if err = e.conn.Recv(e.in, 0, size, received); err != nil {
				return err
			}
		}
		return nil
	})
}
