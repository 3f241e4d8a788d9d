package messages

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// link is a connection on the software RNIC with both its ends.
type link struct {
	*bed.Bed
	near, far *verbena.Conn
	// broken gets the error of the goroutine at the far end when it has ended, and is closed; nil without such a
	// goroutine.
	broken chan error
}

// connect makes a connection with the options o, and size bytes of memory on both sides; 0 for none.
func connect(at bed.Place, o verbena.Options, size int) (_ *link, err error) {
	b, err := bed.Open(at, verbena.Config{Conn: o}, 0, size, nil)
	if err != nil {
		return nil, err
	}
	l := &link{Bed: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	ctx := context.Background()
	ln, err := b.There.Listen("127.0.0.2:0")
	if err != nil {
		return nil, err
	}
	accepted, err := ln.AcceptAsync()
	if err != nil {
		return nil, err
	}
	if l.near, err = b.Here.Dial(ctx, ln.Addr().String()); err != nil {
		return nil, err
	}
	if l.far, err = accepted.Await(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// serve runs do on a goroutine at the far end, until the connection is closed.
func (l *link) serve(do func() error) {
	l.broken = make(chan error, 1)
	go func() {
		defer close(l.broken) // after a round has taken the error, Close must not wait for it
		l.broken <- do()
	}()
}

// Close implements suite.Load.
func (l *link) Close() error {
	err := l.near.Close(context.Background())
	if l.broken != nil {
		if e := <-l.broken; e != nil && !errors.Is(e, verbena.ErrPeerClosed) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, l.Bed.Close())
}

// The number of operations outstanding, and started together.
const depth, listLen = 128, 32
