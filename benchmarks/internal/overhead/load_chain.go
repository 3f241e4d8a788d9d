package overhead

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// chain keeps depth writes with callbacks outstanding: each starts the next. All of it happens
// where results are delivered, so it has no lock: Round starts the first write, whose result
// starts the others. It receives from done when all have completed, and then owns the fields
// again.
type chain struct {
	*bed.Bed
	op    verbena.Op
	start int // not started yet
	left  int // not completed yet
	err   error
	done  chan struct{}
}

// first is the tag of the initial write.
const first = 1

func newCallbacks(at bed.Place) (suite.Load, error) {
	p, err := bed.Open(at, verbena.Config{}, 1, bed.Word, nil)
	if err != nil {
		return nil, err
	}
	return &chain{Bed: p, op: verbena.WriteOp(p.Local, p.Remote), done: make(chan struct{}, 1)}, nil
}

func (l *chain) Round(n int, found rounds.Values) error {
	return l.Counted(found, func() error {
		l.start, l.left, l.err = n-1, n, nil
		if err := l.Conns[0].StartTo(context.Background(), &l.op, l, first); err != nil {
			return err
		}
		<-l.done
		return l.err
	})
}

// Complete implements reactor.Sink.
func (l *chain) Complete(t verbena.SinkContext, r verbena.Result, err error) {
	l.left--
	more := 1
	if r.Tag == first {
		more = depth
	}
	for ; more > 0 && l.start > 0 && err == nil; more-- {
		if err = l.Conns[0].StartFromSink(t, &l.op, l, 0); err == nil {
			l.start--
		}
	}
	if err != nil {
		l.err = errors.Join(l.err, err)
		l.left -= l.start // these are never started
		l.start = 0
	}
	if l.left <= 0 {
		l.done <- struct{}{}
	}
}
