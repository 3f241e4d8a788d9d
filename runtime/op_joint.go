package runtime

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
)

// DoAll starts ops in order, as [Conn.StartAll] does, and waits until all have ended, as
// Do does for one: posting and polling itself where nobody else does. It is the
// cheapest way to have several operations done.
//
// It returns how many succeeded before the first that did not, and why that one did not:
// what Start would have returned if it was not started, else its failure. The results of all
// that succeeded are in rs then, which is as long as ops, or nil if nobody wants them.
// When ctx ends first it returns 0 and the context's error; what was started goes on.
//
// In steady state it allocates nothing, but for what Start allocates for.
func (c *Conn) DoAll(ctx context.Context, ops []Op, rs []Result) (n int, err error) {
	if rs != nil && len(rs) < len(ops) {
		return 0, fmt.Errorf("%w: room for %d results of %d operations", ErrInvalid, len(rs), len(ops))
	}
	asked, err := reactor.Ask(ctx)
	if err != nil || len(ops) == 0 {
		return 0, err
	}
	j := opGroups.Get().(*opGroup)
	all, _, refused := j.start(asked, c, ops, rs != nil, j)
	if _, err := all.Await(asked); err != nil {
		all.Discard() // and the joint is left to the operations that are out
		return 0, asked.Why(ctx, err)
	}
	n, err = j.over(rs, refused)
	return n, asked.Why(ctx, err)
}

// opGroup is the sink of operations that somebody waits for together.
//
//	open ──> some out, some ended ──> all ended: settled ──> the pool
//	                └──> who waits gives up: settled for nobody, and forgotten
//
// Until it is settled, which publishes it, all is the holder's, but what open sets before
// the first operation is submitted.
type opGroup struct {
	all    futures.Promise[Result]
	of     int // how many are to end
	done   int // have ended
	failed int // the first of those with an error
	err    error
	rs     []Result // by number, where ended is true; both empty if nobody wants them
	ended  []bool
}

// opGroups are those that nobody has.
var opGroups = sync.Pool{New: func() any { return new(opGroup) }}

// start starts ops, whose results sink passes on to j, and returns what startAll does. The
// future is settled when all have ended that were started; who gives up waiting for it must
// not call over.
func (j *opGroup) start(ctx context.Context, c *Conn, ops []Op, keep bool, sink Sink) (all Future, started int, refused error) {
	j.open(len(ops), keep)
	j.all, all = c.sh.r.Futures().New(c.sh.r.Driver())
	started, refused = c.startAll(ctx, ops, nil, sink)
	if n := started; n < len(ops) {
		c.sh.r.Defer(func() { j.setTotal(n) })
	}
	return all, started, refused
}

// over stores the results, says what DoAll returns, and gives j to the pool. All have
// ended, and j is told of no more; refused is why not all were started.
func (j *opGroup) over(rs []Result, refused error) (n int, err error) {
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

// setTotal says that there are fewer than was thought. Holder only.
func (j *opGroup) setTotal(of int) {
	j.of = of
	j.settle()
}

func (j *opGroup) settle() {
	if j.done == j.of {
		j.all.Settle(Result{}, nil)
	}
}
