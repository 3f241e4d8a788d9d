package peers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// smallConfig is the name of the configuration of connecting: options for a service with many clients.
const smallConfig = "small"

// connecting makes connections, bed.Dialers at a time, and closes them.
type connecting struct {
	*link
	to string
}

func newConnecting(to string, h shape) (suite.Load, error) {
	rt, err := verbena.Open(h.config())
	return &connecting{&link{rt: rt}, to}, err
}

func (l *connecting) Round(n int, found rounds.Values) error {
	ctx, all := context.Background(), make([]*verbena.Conn, n)
	began := time.Now()
	err := several(n, func(i int) (err error) {
		all[i], err = l.rt.Dial(ctx, l.to)
		return err
	})
	found[vRate] = float64(n) / time.Since(began).Seconds()
	return errors.Join(err, several(n, func(i int) error {
		if all[i] == nil {
			return nil // not made
		}
		return all[i].Close(ctx)
	}))
}

// several calls do with 0 to n-1, on bed.Dialers goroutines. A goroutine ends after its first error.
func several(n int, do func(i int) error) error {
	var next atomic.Int64 // the next to be done; publishes nothing
	var wg sync.WaitGroup
	errs := make([]error, bed.Dialers)
	for g := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[g] == nil; i = int(next.Add(1)) - 1 {
				errs[g] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
