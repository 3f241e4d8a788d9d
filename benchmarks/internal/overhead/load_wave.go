package overhead

import (
	"context"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/futures"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// depth is the number of outstanding operations of one submitter.
const depth = 128

// wave keeps writes outstanding, started as a batch, and awaits each of them.
type wave struct {
	ops []verbena.Op
	fs  []verbena.Future // one for each write
	// together waits for all of them with one wait, without futures.
	together bool
	// before is called with the number of writes in the wave before it is submitted; nil for
	// none.
	before func(n int)
}

// newWave makes a wave of under writes, which go to the remotes in rotation.
func newWave(local verbena.Slice, under int, remotes ...verbena.Remote) wave {
	w := wave{ops: make([]verbena.Op, under), fs: make([]verbena.Future, under)}
	for i := range w.ops {
		w.ops[i] = verbena.WriteOp(local, remotes[i%len(remotes)])
	}
	return w
}

// run performs n writes, at most a wave at a time.
func (w *wave) run(c *verbena.Conn, n int) error {
	ctx, b, under := context.Background(), c.Batch(), len(w.ops)
	for ; n > 0; n -= under {
		wave := min(n, under)
		if w.before != nil {
			w.before(wave)
		}
		if w.together {
			if _, err := c.DoAll(ctx, w.ops[:wave], nil); err != nil {
				return err
			}
			continue
		}
		if _, err := b.StartAll(ctx, w.ops[:wave], w.fs); err != nil {
			return err
		}
		for _, f := range w.fs[:wave] {
			if _, err := f.Await(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// grouped is one goroutine with depth outstanding writes in a program without batches: each write
// wakes the reactor if it sleeps, and a Group waits for all.
type grouped struct {
	*bed.Bed
	group futures.Group
	fs    []verbena.Future
}

func newGrouped(at bed.Place) (suite.Load, error) {
	p, err := bed.Open(at, verbena.Config{}, 1, bed.Word, nil)
	return &grouped{Bed: p}, err
}

func (l *grouped) Round(n int, found rounds.Values) error {
	return l.Counted(found, func() error {
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
		f, err := l.Conns[0].Write(ctx, l.Local, l.Remote)
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

// futuresLoad is one goroutine with many outstanding writes.
type futuresLoad struct {
	*bed.Bed
	wave
}

// newFutures makes one submitter: depth writes of 8 bytes, awaited in batches.
func newFutures(at bed.Place) (suite.Load, error) { return newFuturesOf(at, bed.Word, depth) }

// large is the size of a large write, in bytes, and largeDepth the number outstanding: enough to
// have the next one there when one ends.
const large, largeDepth = 64 << 10, 16

// newFutures64K is the same with large writes.
func newFutures64K(at bed.Place) (suite.Load, error) { return newFuturesOf(at, large, largeDepth) }

// newTogether makes one submitter with a single wait for its writes.
func newTogether(at bed.Place) (suite.Load, error) {
	l, err := newFuturesOf(at, bed.Word, depth)
	if err == nil {
		l.together = true
	}
	return l, err
}

func newFuturesOf(at bed.Place, size, under int) (*futuresLoad, error) {
	p, err := bed.Open(at, verbena.Config{}, 1, size, nil)
	if err != nil {
		return nil, err
	}
	return &futuresLoad{p, newWave(p.Local, under, p.Remote)}, nil
}

func (l *futuresLoad) Round(n int, found rounds.Values) error {
	return l.Counted(found, func() error { return l.run(l.Conns[0], n) })
}

// syncLoad is one goroutine that writes and waits, repeatedly.
type syncLoad struct{ *bed.Bed }

func newSync(at bed.Place) (suite.Load, error) {
	p, err := bed.Open(at, verbena.Config{}, 1, bed.Word, nil)
	return &syncLoad{p}, err
}

func (l *syncLoad) Round(n int, found rounds.Values) error {
	ctx, op := context.Background(), verbena.WriteOp(l.Local, l.Remote)
	return l.Counted(found, func() error {
		for range n {
			if _, err := l.Conns[0].Do(ctx, &op); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyLoad is the baseline of large writes: as much, copied by this processor between two buffers
// of the same kind.
type copyLoad struct {
	*bed.Bed
	from, to []byte
}

func newCopy(at bed.Place) (suite.Load, error) {
	p, err := bed.Open(at, verbena.Config{}, 1, large, nil)
	if err != nil {
		return nil, err
	}
	r, err := p.Here.NewRegion(large, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	return &copyLoad{p, p.Local.Bytes(), r.Bytes()}, nil
}

func (l *copyLoad) Round(n int, _ rounds.Values) error {
	for range n {
		copy(l.to, l.from)
	}
	return nil
}
