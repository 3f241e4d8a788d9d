package runtime

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
)

// DoAll starts ops in order, as [Conn.StartAll] does, and waits until all started operations have
// ended. Like [Conn.Do] it drives the reactor while it waits. DoAll is the cheapest way to execute
// several operations.
//
// If all operations succeed, DoAll returns len(ops) and nil. If an operation fails or cannot be
// started, DoAll returns the lowest index of such an operation, and the error of that operation. If
// rs is not nil, rs must be at least as long as ops; if ops[i] succeeds, rs[i] is set to its result.
// If ctx ends before all started operations have ended, DoAll returns 0 and the context's error, and
// the started operations continue.
//
// In steady state DoAll allocates only where Start allocates.
func (c *Conn) DoAll(ctx context.Context, ops []Op, rs []Result) (n int, err error) {
	if rs != nil && len(rs) < len(ops) {
		return 0, fmt.Errorf("%w: room for %d results of %d operations", ErrInvalid, len(rs), len(ops))
	}
	asked, err := reactor.Unended(ctx)
	if err != nil || len(ops) == 0 {
		return 0, err
	}
	j := opGroups.Get().(*opGroup)
	all, _, refused := j.start(asked, c, ops, rs != nil, j)
	if _, err := all.Await(asked); err != nil {
		all.Discard() // outstanding operations still refer to the group: do not reuse it
		return 0, asked.Cause(ctx, err)
	}
	n, err = j.finish(rs, refused)
	return n, asked.Cause(ctx, err)
}

// opGroup is the sink of a group of operations that are awaited together.
//
//	in use ──> all operations have ended: the promise is settled ──> back in opGroups
//	   └─ the wait ended early ──> all operations have ended: the promise is settled, no reuse
//
// The goroutine that waits sets the fields before it submits the first operation. From then on the
// holder of the reactor's turn owns the fields. When the holder settles the promise, it publishes
// the fields to the goroutine that waits, which owns them again.
type opGroup struct {
	all    futures.Promise[Result]
	of     int // number of operations for which the group waits
	done   int // number of operations that have ended
	failed int // lowest index of a failed operation; valid if err is not nil
	err    error
	rs     []Result // rs[i] is the result of operation i, if ended[i]; empty if no results are wanted
	ended  []bool   // ended[i] reports that operation i has succeeded; empty if no results are wanted
}

// opGroups holds unused groups.
var opGroups = sync.Pool{New: func() any { return new(opGroup) }}

// opGroup.start starts ops. The argument sink gets the results of the operations and must pass them
// to j.Complete. (DoAll passes j itself as sink.) If keep is true, j keeps the results. The
// returned future is settled when all started operations have ended. If the caller stops waiting
// before that, it must not call j.finish. opGroup.start also returns the number of started
// operations. If an operation could not be started, it also returns the error of that operation.
func (j *opGroup) start(ctx context.Context, c *Conn, ops []Op, keep bool, sink Sink) (all Future, started int, refused error) {
	j.open(len(ops), keep)
	j.all, all = c.sh.r.Futures().New(c.sh.r.Driver())
	started, refused = c.startAll(ctx, ops, nil, sink)
	if n := started; n < len(ops) {
		c.sh.r.Defer(func() { j.setTotal(n) })
	}
	return all, started, refused
}

// opGroup.finish stores the results in rs, puts j back into the pool, and returns the results n and
// err of DoAll. All started operations must have ended. If an operation could not be started, the
// second argument is the error of that operation, and otherwise nil.
func (j *opGroup) finish(rs []Result, refused error) (n int, err error) {
	if n, err = j.of, refused; j.err != nil {
		n, err = j.failed, j.err
	}
	if rs != nil {
		for i, ok := range j.ended {
			if ok {
				rs[i] = j.rs[i]
			}
		}
	}
	opGroups.Put(j)
	return n, err
}

func (j *opGroup) open(of int, keep bool) {
	j.of, j.done, j.err = of, 0, nil
	j.rs, j.ended = j.rs[:0], j.ended[:0]
	if keep {
		j.rs = slices.Grow(j.rs, of)[:of]
		j.ended = slices.Grow(j.ended, of)[:of]
		clear(j.ended)
	}
}

// Complete implements Sink.
func (j *opGroup) Complete(_ SinkContext, r Result, err error) {
	switch i := int(r.Tag); {
	case err != nil:
		if j.err == nil || i < j.failed {
			j.failed, j.err = i, err
		}
	case len(j.ended) > 0:
		j.rs[i], j.ended[i] = r, true
	}
	j.done++
	j.settle()
}

// setTotal sets j.of to the number of operations that were started, if one could not be started.
// Holder only.
func (j *opGroup) setTotal(of int) {
	j.of = of
	j.settle()
}

func (j *opGroup) settle() {
	if j.done == j.of {
		j.all.Settle(Result{}, nil)
	}
}
