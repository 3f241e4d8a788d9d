// Command 08-librdmacm-client-and-server is rdma_client and rdma_server of librdmacm, with package rdmacm.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// messageSize is the size of the messages of rdma_client and rdma_server, which can be the other end.
const messageSize = 16

func main() { ends.Own{Serve: server, Dial: client}.Main() }

// attr describes a queue pair with room for one send and one receive. Every request has a completion.
func attr() *rdmacm.QPInitAttr {
	return &rdmacm.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: messageSize}, SQSigAll: true}
}

// conversation posts a receive, has the identifier connected, and calls talk with the memory of the receive.
func conversation(ctx context.Context, id *rdmacm.ID, connect func(context.Context, *verbs.ConnParam) error, talk func(in []byte) error) (err error) {
	m, err := verbs.AllocMemory(messageSize) // not of the Go heap: the device writes into it
	if err != nil {
		return err
	}
	defer ends.Undo(&err, m.Close)
	mr, err := id.RegMsgs(m.Bytes()[:messageSize])
	if err != nil {
		return err
	}
	defer ends.Undo(&err, mr.Dereg)
	if err = id.PostRecv(0, mr.Bytes(), mr); err != nil { // before the other end can send
		return err
	}
	if err = connect(ctx, nil); err != nil {
		return err
	}
	defer ends.Undo(&err, func() error { return id.Disconnect(ctx) }) // both ends call it
	return talk(mr.Bytes())
}

// send sends a message, and takes its completion.
func send(ctx context.Context, id *rdmacm.ID, text string) (verbs.WC, error) {
	out := make([]byte, messageSize)
	copy(out, text)
	if err := id.PostSend(0, out, nil, verbs.SendInline); err != nil { // inline: the memory is copied now
		return verbs.WC{}, err
	}
	return id.GetSendComp(ctx)
}

// receive takes the completion of the receive, and prints the message.
func receive(ctx context.Context, w io.Writer, id *rdmacm.ID, in []byte) error {
	wc, err := id.GetRecvComp(ctx)
	if err = errors.Join(err, wc.Err()); err != nil {
		return err
	}
	fmt.Fprintf(w, "received %q\n", bytes.TrimRight(in[:wc.ByteLen], "\x00"))
	return nil
}

// resolve is rdma_getaddrinfo for an address with a port.
func resolve(ctx context.Context, addr string, flags rdmacm.AIFlags) (*rdmacm.AddrInfo, error) {
	node, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	res, err := rdmacm.GetAddrInfo(ctx, node, service, &rdmacm.AddrInfo{Flags: flags, PortSpace: verbs.PSTCP})
	if err != nil {
		return nil, err
	}
	return &res[0], nil
}

// client is rdma_client.
func client(ctx context.Context, w io.Writer, addr string) (err error) {
	lib, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		return err
	}
	defer ends.Undo(&err, lib.Close)
	res, err := resolve(ctx, addr, 0)
	if err != nil {
		return err
	}
	id, err := lib.CreateEndpoint(ctx, res, nil, attr()) // its address and its route are resolved, and it has a queue pair
	if err != nil {
		return err
	}
	defer ends.Destroy(id, &err)
	return conversation(ctx, id, id.Connect, func(in []byte) error {
		wc, err := send(ctx, id, "hello, server")
		if err = errors.Join(err, wc.Err()); err != nil {
			return err
		}
		return receive(ctx, w, id, in)
	})
}

// server is rdma_server, which serves one client after the other.
func server(ctx context.Context, w io.Writer, addr string, listening func(at string)) (err error) {
	lib, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		return err
	}
	defer ends.Undo(&err, lib.Close)
	res, err := resolve(ctx, addr, rdmacm.AIPassive)
	if err != nil {
		return err
	}
	listener, err := lib.CreateEndpoint(ctx, res, nil, attr()) // the attributes are for its connections
	if err != nil {
		return err
	}
	defer ends.Destroy(listener, &err)
	return ends.Requests(ctx, w, lib, listener, listening, func(id *rdmacm.ID) error {
		return conversation(ctx, id, id.Accept, func(in []byte) error {
			if err := receive(ctx, w, id, in); err != nil {
				return err
			}
			_, err := send(ctx, id, "hello, client") // the client may disconnect before its device acknowledges the answer
			return err
		})
	})
}
