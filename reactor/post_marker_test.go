package reactor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// holding is a faulty device that polls nothing while hold is set: completions stay in it.
type holding struct {
	*faulty
	hold atomic.Bool
}

func (h *holding) Execute(t *verbs.IOBatch) error {
	if !h.hold.Load() {
		return h.faulty.Execute(t)
	}
	polls := t.Polls
	t.Polls = nil
	err := h.faulty.Execute(t)
	t.Polls = polls
	for i := range polls {
		polls[i].N, polls[i].Errno = 0, 0
	}
	return err
}

// cut is a list of requests: the device accepts the first ones, as many as at says, and refuses the others.
type cut struct{ length, at int }

// cuts lists all cuts of lists of up to most requests.
func cuts(most int) (all []cut) {
	for length := 1; length <= most; length++ {
		for at := range length {
			all = append(all, cut{length, at})
		}
	}
	return all
}

// Rule: if the device refuses the ends of several lists, one behind the other, before anything of them has completed,
// the accepted requests of every list succeed, and the refused ones fail. A marker that is outstanding does not retire
// requests that the device accepts after it.
func TestListsThatAreCutBehindEachOther(t *testing.T) {
	var d *holding
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 32, SignalEvery: 16}, func(c verbs.Context) verbs.Context {
		d = &holding{faulty: newFaulty(c)}
		return d
	})
	defer b.close(t)
	defer a.close(t)
	run := func(lists ...cut) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		d.hold.Store(true)
		var all [][]reactor.Future
		for _, l := range lists {
			all = append(all, a.batchAfter(t, b, l.length, func() { d.cutAt.Store(int64(l.at)) }))
			a.do(t, func() { a.r.Flush() })
		}
		d.hold.Store(false)
		for k, fs := range all {
			for i, f := range fs {
				if _, err := f.Await(ctx); (err == nil) != (i < lists[k].at) {
					t.Fatalf("lists %+v: request %d of list %d ended with %v", lists, i+1, k+1, err)
				}
			}
		}
	}
	some := cuts(4)
	for _, one := range some {
		for _, two := range some {
			run(one, two)
		}
	}
	run(cut{3, 2}, cut{3, 2}, cut{3, 2})
	run(cut{3, 2}, cut{3, 0}, cut{3, 2}, cut{3, 0})
	if st := a.r.Stats(); st.Stranded != 0 || st.Outstanding != 0 || a.q.Err() != nil {
		t.Errorf("%d sends are stranded and %d outstanding, and the queue failed with %v", st.Stranded, st.Outstanding, a.q.Err())
	}
}
