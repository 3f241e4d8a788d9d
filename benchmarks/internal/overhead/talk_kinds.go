package overhead

import (
	"context"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/futures"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// batch is the number of writes posted at a time, as in ib_write_bw with -l 32: one completion
// covers that many, and each write that ends starts another.
const batch = 32

// stream keeps depth writes outstanding, which sinks start; while it runs it belongs to the
// holder.
type stream struct {
	c     *verbena.Conn
	op    verbena.Op
	start int // not started yet
	left  int // not ended yet
	over  futures.Promise[verbena.Result]
}

// Complete implements reactor.Sink.
func (s *stream) Complete(t verbena.SinkContext, r verbena.Result, err error) {
	s.left--
	if s.start > 0 && err == nil {
		s.start--
		err = s.c.StartFromSink(t, &s.op, s, 0)
	}
	if s.left == 0 || err != nil {
		s.over.Settle(r, err)
	}
}

// overs are the futures of streams.
var overs = futures.NewPool(futures.Options[verbena.Result]{})

// run makes n writes. The reactor's own goroutine polls.
func (s *stream) run(ctx context.Context, n int) error {
	var f verbena.Future
	s.over, f = overs.New(nil)
	s.start, s.left = max(n-depth, 0), n
	for range min(n, depth) {
		if err := s.c.TryStartTo(&s.op, s, 0); err != nil {
			return err
		}
	}
	_, err := f.Await(ctx)
	return err
}

// rate performs writes of 8 bytes, depth outstanding, as fast as possible.
func (e *end) rate(ctx context.Context, n int, found rounds.Values) error {
	s := &stream{c: e.conn, op: verbena.WriteOp(e.outSlice, e.peer)}
	if err := s.run(ctx, depth); err != nil {
		return err
	}
	began := time.Now()
	err := s.run(ctx, n)
	found[suite.Wall] = float64(time.Since(began))
	return err
}

// writes writes a word to the peer and waits for one written back, as in ib_write_lat: each end
// waits for the word in its memory.
func (e *end) writes(ctx context.Context, n int, found rounds.Values) error {
	return timed(n, found, func(i int) error {
		if err := e.write(ctx, uint64(i+1)); err != nil {
			return err
		}
		return e.await(ctx, uint64(i+1))
	})
}

func (e *end) answerWrites(ctx context.Context, n int) error {
	for i := range n {
		if err := e.await(ctx, uint64(i+1)); err != nil {
			return fmt.Errorf("write %d: %w", i, err)
		}
		if err := e.write(ctx, uint64(i+1)); err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
	}
	return nil
}

// receives are the receives posted by a raw end, the oldest first.
type receives struct {
	e    *end
	fs   [talkSlots]verbena.Future
	next int
}

// receive posts all receives.
func (e *end) receive() (*receives, error) {
	r := &receives{e: e}
	for i, s := range e.slots {
		var err error
		if r.fs[i], err = e.conn.PostRecv(s); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// await waits for the next message and posts its receive again.
func (r *receives) await(ctx context.Context) error {
	i := r.next
	r.next = (i + 1) % talkSlots
	got, err := r.fs[i].Await(ctx)
	if err != nil {
		return err
	}
	if got.Bytes != bed.Word {
		return fmt.Errorf("a message of %d bytes", got.Bytes)
	}
	r.fs[i], err = r.e.conn.Batch().Start(context.Background(), new(verbena.PostRecvOp(r.e.slots[i]))) // posted with the next send
	return err
}

// sends sends a message of 8 bytes to the peer and waits for its answer, with SEND and receives
// that both post, as in ib_send_lat.
func (e *end) sends(ctx context.Context, n int, found rounds.Values) error {
	r, err := e.receive()
	if err != nil {
		return err
	}
	op, b := verbena.SendOp(e.outSlice), e.conn.Batch()
	return timed(n, found, func(int) error {
		f, err := b.Start(ctx, &op) // posted by the wait for the answer
		if err != nil {
			return err
		}
		if err := r.await(ctx); err != nil {
			return err
		}
		_, err = f.Await(ctx)
		return err
	})
}

func (e *end) answerSends(ctx context.Context, n int) error {
	r, err := e.receive()
	if err != nil {
		return err
	}
	for i := range n {
		if err := r.await(ctx); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if _, err := e.conn.Do(ctx, new(verbena.SendOp(e.outSlice))); err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
	}
	return nil
}

// messages is the same on a managed connection, which handles receives and credits.
func (e *end) messages(ctx context.Context, n int, found rounds.Values) error {
	op := verbena.SendBytesOp(make([]byte, bed.Word))
	return timed(n, found, func(int) error { return bed.Exchange(ctx, e.conn, &op) })
}

func (e *end) answerMessages(ctx context.Context, n int) error {
	for i := range n {
		if err := bed.Answer(ctx, e.conn); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	e.conn.Batch().Flush() // no later wait posts the last answer
	return nil
}
