package overhead

import (
	"context"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/futures"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// depth is how many operations one submitter has under way.
const depth = 128

// wave has writes under way, started as a batch, and awaits each of them.
type wave struct {
	fs []verbena.Future
	// before is called with the number of the write in its wave, when it is about to
	// be submitted; nil for nobody.
	before func(i int)
	// remotes are where the writes of a wave go, one after the other, around.
	remotes []verbena.Remote
}

// run writes n times, at most under at once.
func (w *wave) run(c *verbena.Conn, local verbena.Slice, n, under int) error {
	ctx, b := context.Background(), c.Batch()
	for ; n > 0; n -= under {
		w.fs = w.fs[:0]
		for i := range min(n, under) {
			if w.before != nil {
				w.before(i)
			}
			f, err := b.Write(ctx, local, w.remotes[i%len(w.remotes)])
			if err != nil {
				return err
			}
			w.fs = append(w.fs, f)
		}
		for _, f := range w.fs {
			if _, err := f.Await(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// grouped is one goroutine with depth writes under way as a program has them that knows
// of no batches: each wakes the reactor if it sleeps, and a Group waits for all.
type grouped struct {
	*pair
	group futures.Group
	fs    []verbena.Future
}

func newGrouped(m machine) (load, error) {
	p, err := connect(m, verbena.Config{}, 1, word, nil)
	return &grouped{pair: p}, err
}

func (l *grouped) round(n int, found rounds.Values) error {
	return l.counted(found, func() error {
		for ; n > 0; n -= depth {
			if err := l.wave(min(n, depth)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *grouped) wave(n int) error {
	ctx := context.Background()
	l.fs = l.fs[:0]
	for range n {
		f, err := l.conns[0].Write(ctx, l.local, l.remote)
		if err == nil {
			err = futures.Add(&l.group, f)
		}
		if err != nil {
			return err
		}
		l.fs = append(l.fs, f)
	}
	if err := l.group.Wait(ctx); err != nil {
		return err
	}
	for _, f := range l.fs {
		if _, err, _ := f.Poll(); err != nil {
			return err
		}
	}
	return nil
}

// futuresLoad is one goroutine with many writes under way.
type futuresLoad struct {
	*pair
	wave
	under int
}

// newFutures is one submitter: depth writes of 8 bytes, awaited in batches.
func newFutures(m machine) (load, error) { return newFuturesOf(m, word, depth) }

// large is the size of a large write, in bytes, and largeDepth how many are under way:
// enough to have the next one there when one ends.
const large, largeDepth = 64 << 10, 16

// newFutures64K is the same with large writes.
func newFutures64K(m machine) (load, error) { return newFuturesOf(m, large, largeDepth) }

func newFuturesOf(m machine, size, under int) (load, error) {
	p, err := connect(m, verbena.Config{}, 1, size, nil)
	if err != nil {
		return nil, err
	}
	return &futuresLoad{pair: p, wave: wave{remotes: []verbena.Remote{p.remote}}, under: under}, nil
}

func (l *futuresLoad) round(n int, found rounds.Values) error {
	return l.counted(found, func() error { return l.run(l.conns[0], l.local, n, l.under) })
}

// syncLoad is one goroutine that writes and waits, again and again.
type syncLoad struct{ *pair }

func newSync(m machine) (load, error) {
	p, err := connect(m, verbena.Config{}, 1, word, nil)
	return &syncLoad{p}, err
}

func (l *syncLoad) round(n int, found rounds.Values) error {
	ctx := context.Background()
	return l.counted(found, func() error {
		for range n {
			if _, err := l.conns[0].WriteWait(ctx, l.local, l.remote); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyLoad is what large writes are beside: as much, copied by this processor between
// two buffers of the same kind.
type copyLoad struct {
	*pair
	from, to []byte
}

func newCopy(m machine) (load, error) {
	p, err := connect(m, verbena.Config{}, 1, large, nil)
	if err != nil {
		return nil, err
	}
	r, err := p.here.NewRegion(large, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	return &copyLoad{p, p.local.Bytes(), r.Bytes()}, nil
}

func (l *copyLoad) round(n int, _ rounds.Values) error {
	for range n {
		copy(l.to, l.from)
	}
	return nil
}
