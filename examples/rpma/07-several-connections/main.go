// Command 07-several-connections serves several clients at the same time.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/runtime/rpma"
)

const (
	clients = 3
	word    = 8
)

var example = ends.Peers{Serve: server, Dial: client}

func main() { example.Main() }

// server reads a word of each of its clients, on a goroutine for each. A program in C waits for the descriptors of
// all endpoints, connections and CQs with epoll; rpma has these descriptors, too.
func server(ctx context.Context, w io.Writer, p *rpma.Peer, ep *rpma.Endpoint) (err error) {
	results, served := make(chan error, clients), 0
	for ; served < clients; served++ {
		conn, aerr := ends.Accept(ctx, ep, nil, nil)
		if aerr != nil {
			err = aerr
			break
		}
		go func() { results <- serveOne(ctx, w, p, conn) }()
	}
	for ; served > 0; served-- {
		err = errors.Join(err, <-results)
	}
	return err
}

// serveOne reads from the memory that the client has described.
func serveOne(ctx context.Context, w io.Writer, p *rpma.Peer, conn *rpma.Conn) (err error) {
	dst, err := p.NewMR(word, rpma.ReadDst)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, dst.Close)
	defer ends.HangUp(ctx, conn, false, &err) // the server disconnects: the client waits for it
	src, err := rpma.ParseRemoteMR(conn.PrivateData())
	if err != nil {
		return err
	}
	if err = conn.Read(dst, 0, src, 0, word, rpma.CompletionAlways, 1); err != nil {
		return err
	}
	if _, err = ends.Completion(ctx, conn.CQ()); err == nil {
		fmt.Fprintf(w, "server: a client has the word %d\n", binary.LittleEndian.Uint64(dst.Bytes()))
	}
	return err
}

// client makes several connections, each with a word that the server reads.
func client(ctx context.Context, w io.Writer, p *rpma.Peer, host, port string) (err error) {
	mr, err := p.NewMR(word, rpma.ReadSrc)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, mr.Close)
	binary.LittleEndian.PutUint64(mr.Bytes(), 42)
	desc, err := mr.Descriptor()
	if err != nil {
		return err
	}
	for range clients { // all before the first one ends
		conn, err := ends.Request(ctx, p, host, port, nil, desc[:])
		if err != nil {
			return err
		}
		defer ends.HangUp(ctx, conn, true, &err)
	}
	fmt.Fprintf(w, "client: made %d connections\n", clients)
	return nil
}
