package peers

import (
	"context"
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// writes is one goroutine that writes and waits, again and again.
type writes struct {
	*link
	op   verbena.Op
	took suite.Samples
}

func newWrites(to string, h shape) (suite.Load, error) {
	l, err := dial(to, h)
	if err != nil {
		return nil, err
	}
	op, err := l.writeOp(h.size)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &writes{link: l, op: op}, nil
}

func (l *writes) Round(n int, found rounds.Values) error {
	ctx := context.Background()
	return halves(&l.took, n, found, func() error {
		_, err := l.conn.Do(ctx, &l.op)
		return err
	})
}

// halves does n round trips and reports half of each: the percentiles, and the mean.
func halves(took *suite.Samples, n int, found rounds.Values, trip func() error) error {
	took.Room(n)
	began := time.Now()
	for range n {
		t := time.Now()
		if err := trip(); err != nil {
			return err
		}
		*took = append(*took, time.Since(t)/2)
	}
	found[vMean] = float64(time.Since(began)) / 2 / float64(n)
	took.Report(found)
	return nil
}

// messages is one goroutine that sends a message and waits for the answer.
type messages struct {
	*link
	text []byte
	took suite.Samples
}

func newMessages(to string, h shape) (suite.Load, error) {
	l, err := dial(to, h)
	return &messages{link: l, text: make([]byte, h.size)}, err
}

func (l *messages) Round(n int, found rounds.Values) error {
	ctx, op := context.Background(), verbena.SendBytesOp(l.text)
	return halves(&l.took, n, found, func() error { return bed.Exchange(ctx, l.conn, &op) })
}
