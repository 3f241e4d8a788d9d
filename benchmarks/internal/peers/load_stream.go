package peers

import (
	"errors"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// stream is one goroutine with WRITEs or messages outstanding, started in lists.
type stream struct {
	*link
	bed.Lists
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
	return &stream{l, bed.NewLists(op, h.list, h.depth)}, nil
}

func newSends(to string, h shape) (suite.Load, error) {
	l, err := dial(to, h)
	if err != nil {
		return nil, err
	}
	return &stream{l, bed.NewLists(verbena.SendBytesOp(make([]byte, h.size)), h.list, h.depth)}, nil
}

// Round implements suite.Load.
func (l *stream) Round(n int, _ rounds.Values) error { return l.Run(l.conn, n) }
