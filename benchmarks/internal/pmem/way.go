package pmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// The names of ways, which are sides too.
const (
	byRPMA = "rpma"
	byPlog = "plog"
)

// The modes: how an appender waits for a completion.
const (
	polling = "polling" // it looks again and again
	waiting = "waiting" // it sleeps until there is one
)

// way is a way to append to persistent memory of another process.
type way struct {
	// serve has a file as memory, and one peer append to it, until the peer has gone. It passes the address at
	// which it listens to ready.
	serve func(ctx context.Context, rt *verbena.Runtime, file, addr string, ready func(addr string)) error
	// dial connects to the server at addr.
	dial func(ctx context.Context, rt *verbena.Runtime, addr, mode string) (appender, error)
}

var ways = map[string]way{byRPMA: {serveRPMA, dialRPMA}, byPlog: {servePlog, dialPlog}}

// load is what an end appends, and how.
type load struct {
	mode string
	gap  time.Duration // before each append the end computes for this long, which is not measured
	ops  int           // measured appends of each size
}

// appender appends records, one at a time. One goroutine uses it.
type appender interface {
	// append appends a record of size bytes, and returns when it is persistent.
	append(ctx context.Context, size int) error
	close(ctx context.Context) error
}

// c/append.c has the same numbers.
const (
	ring    = 1 << 20 // the memory that records are appended to, again and again, except that of a log
	largest = 4096    // of sizes
	warm    = 100     // appends of each size that are not measured: they touch the memory
)

// next returns the offset of a record of size bytes in the ring, if the last one ended at end.
func next(end, size int) int {
	if end+size > ring {
		return 0
	}
	return end
}

// timed appends the records of l, and adds the times that an append took to found.
func (l *load) timed(ctx context.Context, a appender, found rounds.Values) error {
	var took suite.Samples
	for _, size := range sizes {
		took.Room(l.ops)
		for i := range warm + l.ops {
			t := time.Now()
			for l.gap > 0 && time.Since(t) < l.gap {
			}
			t = time.Now()
			if err := a.append(ctx, size); err != nil {
				return fmt.Errorf("append %d of %d bytes: %w", i, size, err)
			}
			if i >= warm {
				took = append(took, time.Since(t))
			}
		}
		reportSized(took, size, found)
	}
	return nil
}

// reportSized adds the percentiles of appends of a size to found.
func reportSized(took suite.Samples, size int, found rounds.Values) {
	of := rounds.Values{}
	took.Report(of)
	for name, v := range of {
		found[sized(name, size)] = v
	}
}

// dialAndTime connects to the server at addr and appends the records of l there.
func (w way) dialAndTime(ctx context.Context, rt *verbena.Runtime, addr string, l load, found rounds.Values) error {
	a, err := w.dial(ctx, rt, addr, l.mode)
	if err != nil {
		return err
	}
	return errors.Join(l.timed(ctx, a, found), a.close(ctx))
}

// fill makes a file of size bytes that are on the disk: the space of new files is not initialized there, and their
// first writes take longer.
func fill(file string, size int) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Repeat([]byte{0xa5}, size))
	return errors.Join(err, f.Sync(), f.Close())
}
