package peers

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// stream is one goroutine with writes outstanding, started in lists. When the oldest list has ended,
// it starts another one.
//
//	list 0 ── awaited, started ──> list 1 ── awaited, started ──> ... ──> list 0
type stream struct {
	*link
	ops   []verbena.Op       // of one list
	lists [][]verbena.Future // those outstanding
}

func newStream(to string, h shape) (suite.Load, error) {
	l, err := dial(to, h)
	if err != nil {
		return nil, err
	}
	op, err := l.writeOp(h.size)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &stream{link: l, ops: make([]verbena.Op, h.list), lists: make([][]verbena.Future, h.depth/h.list)}
	for i := range s.ops {
		s.ops[i] = op
	}
	for i := range s.lists {
		s.lists[i] = make([]verbena.Future, 0, h.list)
	}
	return s, nil
}

func (l *stream) Round(n int, _ rounds.Values) error {
	ctx, b := context.Background(), l.conn.Batch()
	for started, ended, at := 0, 0, 0; ended < n; at = (at + 1) % len(l.lists) {
		fs := l.lists[at]
		for _, f := range fs {
			if _, err := f.Await(ctx); err != nil {
				return err
			}
		}
		ended += len(fs)
		fs = fs[:min(cap(fs), n-started)]
		if _, err := b.StartAll(ctx, l.ops[:len(fs)], fs); err != nil { // posted by the next wait
			return err
		}
		started += len(fs)
		l.lists[at] = fs
	}
	return nil
}
