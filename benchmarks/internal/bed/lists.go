package bed

import (
	"context"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Lists keeps operations outstanding, started in lists. When the oldest list has ended, it starts another one.
//
//	list 0 ── awaited, started ──> list 1 ── awaited, started ──> ... ──> list 0
type Lists struct {
	// Room, if not nil, is called before each list is started, with its number of operations. It may block until the
	// peer has room for them.
	Room func(n int)

	ops []verbena.Op       // of one list
	out [][]verbena.Future // the outstanding lists
}

// NewLists makes lists of list operations like op, depth operations in all.
func NewLists(op verbena.Op, list, depth int) Lists {
	l := Lists{ops: make([]verbena.Op, list), out: make([][]verbena.Future, depth/list)}
	for i := range l.ops {
		l.ops[i] = op
	}
	for i := range l.out {
		l.out[i] = make([]verbena.Future, 0, list)
	}
	return l
}

// Run performs n operations on a connection. It blocks until all have completed. One goroutine may call it.
func (l *Lists) Run(c *verbena.Conn, n int) error {
	ctx, b := context.Background(), c.Batch()
	for started, ended, at := 0, 0, 0; ended < n; at = (at + 1) % len(l.out) {
		fs := l.out[at]
		for _, f := range fs {
			if _, err := f.Await(ctx); err != nil {
				return err
			}
		}
		ended += len(fs)
		fs = fs[:min(cap(fs), n-started)]
		if l.Room != nil {
			l.Room(len(fs))
		}
		if _, err := b.StartAll(ctx, l.ops[:len(fs)], fs); err != nil { // posted by the next wait
			return err
		}
		started += len(fs)
		l.out[at] = fs
	}
	for i := range l.out {
		l.out[i] = l.out[i][:0] // the next run does not await them again
	}
	return nil
}
