package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// DefaultTimeLimit bounds a conversation whose context has no deadline.
const DefaultTimeLimit = 30 * time.Second

// SRQPairs is the number of lines that ibv_srq_pingpong exchanges, however many queue pairs it
// uses: the rest are Unused.
const SRQPairs = 256

// done is the client's last message.
const done = "done\x00"

// Client exchanges lines with a server: it sends own, receives the addresses of the server's
// queue pairs, calls ready to connect to them, and sends "done". It reads exactly as many lines
// as it writes: ibv_srq_pingpong needs SRQPairs.
//
// It blocks until ctx ends, at most DefaultTimeLimit if ctx has no deadline. nc stays the
// caller's, which closes it; Client uses its deadlines and clears them at the end. Errors:
// ErrMalformed, ErrDest, those of ready, the context and the network; for DefaultTimeLimit
// os.ErrDeadlineExceeded.
//
// Implements: pp_client_exch_dest of libibverbs/examples.
func Client(ctx context.Context, nc net.Conn, own []Dest, ready func(peers []Dest) error) error {
	return talk(ctx, nc, func() error {
		if err := write(nc, own); err != nil {
			return err
		}
		peers, err := read(nc, len(own))
		if err != nil {
			return err
		}
		if err := ready(peers); err != nil {
			return err
		}
		_, err = io.WriteString(nc, done)
		return err
	})
}

// Server is the other side of Client: it receives the addresses of the client's queue pairs,
// calls ready to connect to them, and only then sends own, because the client may send as soon as
// it knows them. It waits for the client's "done". Otherwise as Client.
//
// Implements: pp_server_exch_dest of libibverbs/examples.
func Server(ctx context.Context, nc net.Conn, own []Dest, ready func(peers []Dest) error) error {
	return talk(ctx, nc, func() error {
		peers, err := read(nc, len(own))
		if err != nil {
			return err
		}
		if err := ready(peers); err != nil {
			return err
		}
		if err := write(nc, own); err != nil {
			return err
		}
		var b [len(done)]byte
		if _, err := io.ReadFull(nc, b[:]); err != nil {
			return broken("done", err)
		}
		if string(b[:]) != done {
			return fmt.Errorf("%w: %q instead of %q", ErrMalformed, b, done)
		}
		return nil
	})
}

// talk runs say, one side of a conversation, under ctx.
func talk(ctx context.Context, nc net.Conn, say func() error) (err error) {
	if ctx == nil {
		return fmt.Errorf("%w: a nil context", verbs.ErrInvalid)
	}
	limit := time.Now().Add(DefaultTimeLimit)
	at, bounded := ctx.Deadline()
	if bounded {
		limit = at
	}
	if err := nc.SetDeadline(limit); err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = nc.SetDeadline(time.Unix(1, 0)) // in the past: blocked calls return
	})
	defer func() {
		if !stop() {
			<-interrupted // otherwise its SetDeadline could come after the clearing one
		}
		if cerr := nc.SetDeadline(time.Time{}); err == nil {
			err = cerr
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	err = say()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	case bounded && errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(limit):
		// Two timers run for one deadline, and nc's expired first.
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// write writes all lines at once: C programs read one with a single read(2).
func write(w io.Writer, own []Dest) (err error) {
	b := make([]byte, 0, len(own)*TextLen)
	for _, d := range own {
		if b, err = d.AppendText(b); err != nil {
			return err
		}
	}
	_, err = w.Write(b)
	return err
}

// read reads n lines. It checks the addresses of those that are not Unused.
func read(r io.Reader, n int) ([]Dest, error) {
	var line [TextLen]byte
	peers := make([]Dest, n)
	for i := range peers {
		if _, err := io.ReadFull(r, line[:]); err != nil {
			return nil, broken(fmt.Sprintf("line %d of %d", i+1, n), err)
		}
		d, err := Parse(line[:])
		if err == nil && !d.Unused() {
			err = d.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of %d: %w", i+1, n, err)
		}
		peers[i] = d
	}
	return peers, nil
}

// broken is the error of a conversation that ended early.
func broken(at string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it hung up before the end of %s: %w", ErrMalformed, at, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("waiting for %s: %w", at, err)
}
