package ends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/verbena-rdma/verbena/runtime/rpma"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Peers is a program of package rpma with two ends. Each has its own runtime and peer.
type Peers struct {
	// Serve serves one client, or the clients of one run, at an endpoint. It is called again until the context of the
	// program ends: then the endpoint is closed, and Serve has 5 s to serve clients to the end. Its error is printed on w.
	Serve func(ctx context.Context, w io.Writer, p *rpma.Peer, ep *rpma.Endpoint) error
	// Dial is the client.
	Dial func(ctx context.Context, w io.Writer, p *rpma.Peer, host, port string) error
}

// Main is as that of Example.
func (x Peers) Main() { main(x.Run) }

// Run is as that of Own.
func (x Peers) Run(ctx context.Context, w io.Writer, args ...string) error {
	return Own{Serve: x.serve, Dial: x.dial}.Run(ctx, w, args...)
}

// with opens a runtime and calls fn with its peer.
func with(fn func(rt *verbena.Runtime, p *rpma.Peer) error) (err error) {
	rt, err := verbena.Open(verbena.Config{})
	if err != nil {
		return err
	}
	defer shut(rt, &err)
	p, err := rpma.NewPeer(rt)
	if err != nil {
		return err
	}
	defer Undo(&err, p.Close)
	return fn(rt, p)
}

func (x Peers) serve(ctx context.Context, w io.Writer, addr string, listening func(at string)) error {
	return with(func(rt *verbena.Runtime, p *rpma.Peer) (err error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		if host == "" {
			host = rt.Device().Addr[0].String()
		}
		ep, err := p.Listen(ctx, host, port)
		if err != nil {
			return err
		}
		defer Undo(&err, func() error { return ep.Close(context.Background()) })
		listening(ep.Addr().String())
		serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			_ = ep.Close(serving) // again below
			select {
			case <-serving.Done():
			case <-time.After(drain):
				cancel()
			}
		})()
		for ctx.Err() == nil {
			if err := x.Serve(serving, w, p, ep); err != nil && ctx.Err() == nil {
				fmt.Fprintf(w, "server: %v\n", err)
			}
		}
		return nil
	})
}

func (x Peers) dial(ctx context.Context, w io.Writer, addr string) error {
	return with(func(_ *verbena.Runtime, p *rpma.Peer) error {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		return x.Dial(ctx, w, p, host, port)
	})
}

// Connect connects a request, with private data, and waits until the connection is established.
func Connect(ctx context.Context, req *rpma.ConnReq, private []byte) (*rpma.Conn, error) {
	conn, err := req.Connect(private)
	if err != nil {
		return nil, err
	}
	event, err := conn.NextEvent(ctx)
	if err == nil && event != rpma.Established {
		err = fmt.Errorf("%v: %w", event, conn.Err())
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(context.Background()))
	}
	return conn, nil
}

// Request makes a request to a server, and connects it.
func Request(ctx context.Context, p *rpma.Peer, host, port string, cfg *rpma.ConnConfig, private []byte) (*rpma.Conn, error) {
	req, err := p.NewConnReq(ctx, host, port, cfg)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, req, private)
}

// Accept accepts the next request at an endpoint.
func Accept(ctx context.Context, ep *rpma.Endpoint, cfg *rpma.ConnConfig, private []byte) (*rpma.Conn, error) {
	req, err := ep.NextConnReq(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, req, private)
}

// HangUp disconnects and closes a connection. With wait it first waits for the other end to disconnect, unless there was
// an error. It sets err as Undo does.
func HangUp(ctx context.Context, conn *rpma.Conn, wait bool, err *error) {
	if wait && *err == nil {
		_, *err = conn.NextEvent(ctx) // Closed
	}
	Undo(err, conn.Disconnect)
	Undo(err, func() error { return conn.Close(context.Background()) })
}

// Completion waits for a completion of a CQ. The failure of its operation is an error.
func Completion(ctx context.Context, cq *rpma.CQ) (rpma.WC, error) {
	var wc [1]rpma.WC
	for {
		if err := cq.Wait(ctx); err != nil {
			return wc[0], err
		}
		if _, err := cq.GetWC(wc[:]); !errors.Is(err, rpma.ErrNoCompletion) {
			return wc[0], errors.Join(err, wc[0].Err())
		}
	}
}
