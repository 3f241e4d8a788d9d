package bed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// setUp and tearDown bound the time to connect and to close ten thousand connections, on a busy
// machine.
const setUp, tearDown = 2 * time.Minute, time.Minute

// Dialers is the number of connections made at the same time: enough to keep busy while one waits
// for its peer.
const Dialers = 16

// Word is the size of a small operation, in bytes.
const Word = 8

// Bed holds two runtimes on two devices in this process, connections between them, and memory on
// both sides.
type Bed struct {
	Here, There *verbena.Runtime
	Conns       []*verbena.Conn // of Here
	Took        time.Duration   // to make them
	Local       verbena.Slice   // of Here
	Remote      verbena.Remote  // of There
}

// Open makes a bed with n connections, and size bytes on either side; 0 for none. around may wrap
// the first runtime's provider; nil leaves it unchanged. Open blocks until all connections are
// made. Any goroutine may call it; the caller closes the bed.
func Open(at Place, cfg verbena.Config, n, size int, around func(verbs.Provider) verbs.Provider) (_ *Bed, err error) {
	b := &Bed{Conns: make([]*verbena.Conn, n)}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if cfg.Provider, err = at.Provider(); err != nil {
		return nil, err
	}
	cfg.Device = at.There()
	if b.There, err = verbena.Open(cfg); err != nil {
		return nil, err
	}
	if around != nil {
		cfg.Provider = around(cfg.Provider)
	}
	cfg.Device = at.Here()
	if b.Here, err = verbena.Open(cfg); err != nil {
		return nil, err
	}
	start := time.Now()
	err = b.meet()
	b.Took = time.Since(start)
	if err == nil && size > 0 {
		err = b.reach(size)
	}
	return b, err
}

// meet makes the connections, Dialers at a time.
func (b *Bed) meet() error {
	ctx, timeout := context.WithTimeout(context.Background(), setUp)
	defer timeout()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	ln, err := b.There.Listen(ThereAddr)
	if err != nil {
		return err
	}
	// dialed and taken count the connections started on either side; each worker takes its next
	// from them. They publish nothing.
	var dialed, taken atomic.Int64
	var all sync.WaitGroup
	work := func(count *atomic.Int64, do func(i int64) error) {
		all.Go(func() {
			for i := count.Add(1) - 1; i < int64(len(b.Conns)); i = count.Add(1) - 1 {
				if err := do(i); err != nil {
					fail(err) // the others would wait for their peers
					return
				}
			}
		})
	}
	to := ln.Addr().String()
	for range Dialers {
		work(&dialed, func(i int64) (err error) {
			b.Conns[i], err = b.Here.Dial(ctx, to)
			return err
		})
		work(&taken, func(int64) error {
			_, err := ln.Accept(ctx) // ends with its runtime
			return err
		})
	}
	all.Wait()
	err = context.Cause(ctx) // the first
	return errors.Join(err, ln.Close(ctx))
}

// reach gives both sides memory, for writes from Here to There.
func (b *Bed) reach(size int) error {
	own, err := b.Here.NewRegion(size, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	if b.Local, err = own.Slice(0, size); err != nil {
		return err
	}
	theirs, err := b.There.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	b.Remote, err = theirs.Remote(0, size)
	return err
}

// Close closes both runtimes with all their objects, like the function Close. One goroutine may
// call it.
func (b *Bed) Close() error { return Close(b.Here, b.There) }

// Close closes runtimes; it skips nil. It blocks until they have ended, within a minute or little
// more. Any goroutine may call it.
func Close(all ...*verbena.Runtime) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), tearDown)
	defer cancel()
	for _, rt := range all {
		if rt != nil {
			err = errors.Join(err, rt.Close(ctx))
		}
	}
	return err
}

// Counted runs do and adds the numbers of work requests, lists and completions of the first
// runtime to found. It blocks for do. One goroutine may call it.
func (b *Bed) Counted(found rounds.Values, do func() error) error {
	before := b.Here.Stats()
	err := do()
	after := b.Here.Stats()
	found[suite.Posted] = float64(after.WorkRequests - before.WorkRequests)
	found[suite.Lists] = float64(after.Doorbells - before.Doorbells)
	found[suite.Polled] = float64(after.Polled - before.Polled)
	return err
}

// Writes performs n writes from Local to Remote, one after the other, and adds the time of each
// to took. It blocks until all have completed. Any number of goroutines may call it.
func (b *Bed) Writes(c *verbena.Conn, n int, took *suite.Samples) error {
	ctx, op := context.Background(), verbena.WriteOp(b.Local, b.Remote)
	for range n {
		t := time.Now()
		if _, err := c.Do(ctx, &op); err != nil {
			return err
		}
		*took = append(*took, time.Since(t))
	}
	return nil
}
