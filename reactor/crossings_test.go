package reactor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// crossing counts the turns that reach the device.
type crossing struct {
	verbs.Context
	n *atomic.Int64
}

func (c crossing) Turn(t *verbs.Turn) error {
	c.n.Add(1)
	return c.Context.Turn(t)
}

// Rule: a synchronous operation that completes at once takes one turn of the device:
// who leaves with nothing out, and all armed that can bring something, does not look
// again. (The software RNIC completes within the turn that posts.)
func TestASynchronousOperationCrossesOnce(t *testing.T) {
	onlySoft(t, "a device completes later than the turn that posts")
	var n atomic.Int64
	b := newEnd(t, softBed.open(t, 1), reactor.Config{}, reactor.QueueConfig{}, nil)
	defer b.close(t)
	a := newEnd(t, softBed.open(t, 0), reactor.Config{Recheck: -1}, reactor.QueueConfig{}, func(c verbs.Context) verbs.Context { return crossing{c, &n} })
	defer a.close(t)
	a.ready(t, b)
	b.ready(t, a)
	s, p := a.write(b)
	ctx := context.Background()
	const ops = 1000
	for i := range 2 * ops {
		if i == ops { // the loop has armed and lain down by now
			n.Store(0)
		}
		f, err := a.q.Submit(ctx, s, &p, reactor.Quiet)
		await(t, f, err)
	}
	if got := n.Load(); got > ops+ops/10 {
		t.Errorf("%d operations took %d turns of the device, want one each", ops, got)
	}
}
