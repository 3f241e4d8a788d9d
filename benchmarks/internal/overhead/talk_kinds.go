package overhead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// batch is how many writes are submitted and awaited at a time, as ib_write_bw posts
// them with -l 32: of depth under way the oldest are awaited.
const batch = 32

// rate is writes of 8 bytes, depth under way, as fast as they go.
func (e *end) rate(ctx context.Context, n int, found rounds.Values) error {
	b := e.conn.Batch()
	var under [depth / batch][]verbena.Future
	settle := func(k int) error {
		for _, f := range under[k] {
			if _, err := f.Await(ctx); err != nil {
				return err
			}
		}
		under[k] = under[k][:0]
		return nil
	}
	run := func(n int) error {
		k := 0
		for ; n > 0; n -= batch {
			if err := settle(k); err != nil {
				return err
			}
			for range min(n, batch) {
				f, err := b.Write(ctx, e.outSlice, e.peer)
				if err != nil {
					return err
				}
				under[k] = append(under[k], f)
			}
			k = (k + 1) % len(under)
		}
		var err error
		for i := range under {
			err = errors.Join(err, settle((k+i)%len(under)))
		}
		return err
	}
	if err := run(depth); err != nil {
		return err
	}
	began := time.Now()
	err := run(n)
	found[vWall] = float64(time.Since(began))
	return err
}

// writes is a word written to the peer and one written back, as ib_write_lat does it:
// each end waits for the word in its memory.
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

// receives are those posted by a raw end, the oldest first.
type receives struct {
	e    *end
	fs   [talkSlots]verbena.Future
	next int
}

// receive posts all.
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
	if got.Bytes != word {
		return fmt.Errorf("a message of %d bytes", got.Bytes)
	}
	r.fs[i], err = r.e.conn.PostRecv(r.e.slots[i])
	return err
}

// sends is a message of 8 bytes to the peer and its answer, by SEND and receives that
// both post, as ib_send_lat does it.
func (e *end) sends(ctx context.Context, n int, found rounds.Values) error {
	r, err := e.receive()
	if err != nil {
		return err
	}
	return timed(n, found, func(int) error {
		if _, err := e.conn.SendWait(ctx, e.outSlice); err != nil {
			return err
		}
		return r.await(ctx)
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
		if _, err := e.conn.SendWait(ctx, e.outSlice); err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
	}
	return nil
}

// messages is the same on a managed connection, which looks after receives and credits.
func (e *end) messages(ctx context.Context, n int, found rounds.Values) error {
	var text [word]byte
	return timed(n, found, func(int) error {
		f, err := e.conn.SendBytes(ctx, text[:])
		if err != nil {
			return err
		}
		m, err := e.conn.RecvWait(ctx)
		if err != nil {
			return err
		}
		if err := m.Release(); err != nil {
			return err
		}
		_, err = f.Await(ctx)
		return err
	})
}

func (e *end) answerMessages(ctx context.Context, n int) error {
	for i := range n {
		m, err := e.conn.RecvWait(ctx)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		f, err := e.conn.SendBytes(ctx, m.Data)
		if err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
		f.Discard()
		if err := m.Release(); err != nil {
			return err
		}
	}
	return nil
}
