package ends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// Own is a program with two ends that open their own devices, for example because they have no runtime.
type Own struct {
	// Serve is the server. It calls listening with its address, and serves one client after the other until ctx ends;
	// then it returns nil.
	Serve func(ctx context.Context, w io.Writer, addr string, listening func(at string)) error
	// Dial is the client.
	Dial func(ctx context.Context, w io.Writer, addr string) error
}

// Main is as that of Example.
func (x Own) Main() { main(x.Run) }

// Run runs the server, the client, or both, as the arguments of a command line say. The server
// ends without an error when ctx ends.
func (x Own) Run(ctx context.Context, w io.Writer, args ...string) error {
	mode, addr, _, err := Example{}.parse(args)
	switch {
	case err != nil:
		return err
	case mode == "dial":
		return x.Dial(ctx, w, addr)
	case mode == "serve":
		return x.Serve(ctx, w, addr, func(at string) { fmt.Fprintln(w, "listening at", at) })
	}
	w = &locked{w: w}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	listening, served := make(chan string, 1), make(chan error, 1)
	go func() { served <- x.Serve(serving, w, addr, func(at string) { listening <- at }) }()
	select {
	case at := <-listening:
		if err = x.Dial(ctx, w, at); err != nil {
			err = errors.Join(err, ctx.Err()) // the server may have ended first
		}
		stop()
		return errors.Join(err, <-served)
	case err = <-served:
		return errors.Join(err, ctx.Err())
	}
}

// Undo calls a function that undoes something. If err is nil, it becomes the function's error.
func Undo(err *error, call func() error) {
	if uerr := call(); *err == nil {
		*err = uerr
	}
}

// Destroy is Undo for an identifier. It works also after the context of the identifier's calls has ended.
func Destroy(id *rdmacm.ID, err *error) {
	Undo(err, func() error { return id.Destroy(context.Background()) })
}

// Requests listens, calls listening with its address, and calls serve with the identifier of one request after the
// other until ctx ends; then it returns nil. An error of serve is printed on w.
func Requests(ctx context.Context, w io.Writer, lib *rdmacm.Library, listener *rdmacm.ID, listening func(at string), serve func(id *rdmacm.ID) error) error {
	if err := listener.Listen(0); err != nil {
		return err
	}
	at, err := reachable(lib, listener)
	if err != nil {
		return err
	}
	listening(at.String())
	for {
		id, err := listener.GetRequest(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		peer := id.PeerAddr()
		err = serve(id)
		if Destroy(id, &err); err != nil && ctx.Err() == nil {
			fmt.Fprintf(w, "connection from %v: %v\n", peer, err)
		}
	}
}

// reachable returns the address of a listener for a client of this machine. If the listener is bound to all addresses
// of all devices, that is the first one of the first device.
func reachable(lib *rdmacm.Library, listener *rdmacm.ID) (netip.AddrPort, error) {
	at := listener.LocalAddr()
	if !at.Addr().IsUnspecified() {
		return at, nil
	}
	devices, err := lib.GetDevices()
	if err != nil || len(devices) == 0 {
		return at, err
	}
	return netip.AddrPortFrom(devices[0].Context().Device().Addr[0], at.Port()), nil
}
