package reactor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: when Release returns, everything submitted has completed, also what no
// turn had posted yet.
func TestReleaseEndsWhatWasNotPosted(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	box := make(tally, 4)
	_, sge := a.bytes(0, 8)
	a.do(t, func() {
		check(t, a.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{sge}))
		_, err := a.q.TryPost(&reactor.Send{Opcode: verbs.WRSend, Sink: box}, reactor.Payload{SGEs: []verbs.SGE{sge}})
		check(t, err)
		check(t, a.q.QP().Close())
		check(t, a.q.Release(reactor.ErrQueueClosed))
		if len(box) != 2 {
			t.Errorf("%d of 2 requests had completed when Release returned", len(box))
		}
	})
	for range len(box) {
		if err := <-box; !errors.Is(err, reactor.ErrQueueClosed) {
			t.Errorf("a request of a released queue ended with %v, want ErrQueueClosed", err)
		}
	}
	check(t, a.r.Close(context.Background()))
	check(t, a.mr.Close())
	check(t, a.arena.Unmap())
	check(t, a.pd.Close())
	check(t, a.ctx.Close())
}

// tally keeps how requests ended.
type tally chan error

func (y tally) Complete(_ reactor.Completion, err error) { y <- err }
