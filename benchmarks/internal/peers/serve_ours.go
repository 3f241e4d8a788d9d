package peers

import (
	"context"
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// serveTarget is memory that the client writes to. The server's program does nothing, or waits for a message that
// does not come if its waiting goroutine is the one that polls. The client gets the descriptor with the acceptance.
func serveTarget(h shape) (*service, error) {
	serve := untilGone
	if h.runtime == pollingConfig {
		serve = untilMessage
	}
	return listen(h, func(rt *verbena.Runtime) (verbena.Options, error) {
		r, err := rt.NewRegion(h.size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		if err != nil {
			return verbena.Options{}, err
		}
		where, err := r.Remote(0, h.size)
		if err != nil {
			return verbena.Options{}, err
		}
		told, err := where.MarshalBinary()
		return verbena.Options{PrivateData: told}, err
	}, serve)
}

// serveAccept accepts connections, and closes them when the client has. More of them may wait than by default:
// otherwise the listener refuses some of a client that connects faster than they are accepted.
func serveAccept(h shape) (*service, error) {
	return listen(h, func(*verbena.Runtime) (verbena.Options, error) { return verbena.Options{Backlog: 4096}, nil }, untilGone)
}

// serveEcho answers each message with one of the same text.
func serveEcho(h shape) (*service, error) {
	return listen(h, func(*verbena.Runtime) (verbena.Options, error) { return verbena.Options{}, nil }, echo)
}

// serveReceive receives messages and releases them.
func serveReceive(h shape) (*service, error) {
	return listen(h, func(*verbena.Runtime) (verbena.Options, error) { return verbena.Options{}, nil }, receive)
}

// listen opens a runtime and serves each connection on a goroutine of its own.
func listen(h shape, options func(*verbena.Runtime) (verbena.Options, error), serve func(*verbena.Conn) error) (*service, error) {
	rt, err := verbena.Open(h.config())
	if err != nil {
		return nil, err
	}
	s := &service{close: func() error { return bed.Close(rt) }}
	o, err := options(rt)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	ln, err := rt.ListenOptions(loopback+":0", o)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.port = int(ln.Addr().Port())
	go func() {
		ctx := context.Background()
		for {
			c, err := ln.Accept(ctx)
			if err != nil {
				s.fault.report(err) // closed, or broken
				return
			}
			go func() {
				if err := serve(c); !errors.Is(err, verbena.ErrPeerClosed) {
					s.fault.report(err)
				}
				s.fault.report(c.Close(ctx))
			}()
		}
	}()
	return s, nil
}

// untilGone waits for the end of a connection.
func untilGone(c *verbena.Conn) error {
	<-c.Done()
	return c.Err()
}

// pollFor is how long untilMessage waits at a time: less than the empty passes of pollingConfig take.
const pollFor = 100 * time.Millisecond

// untilMessage polls until the end of a connection whose peer sends no message.
func untilMessage(c *verbena.Conn) error {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), pollFor)
		_, err := c.RecvWait(ctx)
		cancel()
		if err == nil {
			return errors.New("a message came, want none")
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// receive takes the messages that are there at each wake-up, until the connection ends.
func receive(c *verbena.Conn) error {
	ctx, all := context.Background(), make([]verbena.Message, rateList)
	for {
		n, err := c.RecvMany(ctx, all)
		if err != nil {
			return err
		}
		if err := verbena.ReleaseMany(all[:n]); err != nil {
			return err
		}
	}
}

// echo answers each message with one of the same text, until the connection ends.
func echo(c *verbena.Conn) error {
	ctx := context.Background()
	for {
		if err := bed.Answer(ctx, c); err != nil {
			return err
		}
	}
}
