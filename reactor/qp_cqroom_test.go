package reactor_test

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// fewEntries is a device that limits the capacity of a completion queue.
type fewEntries struct {
	verbs.Context
	most int
}

func (f fewEntries) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := f.Context.QueryDevice()
	a.MaxCQE = f.most
	return a, err
}

// QPLimits implements verbs.Context: a queue pair may be deeper than a completion queue.
func (f fewEntries) QPLimits(_ verbs.QPType, want verbs.QPCap) (verbs.QPCap, error) { return want, nil }

// Rule: if Config.CQEntries is 0, the completion queues grow with the admitted Queues, up to the
// device's limit. So there is an entry for every outstanding request. If CQEntries is not 0, the
// completion queues keep this capacity. When a Queue is reclaimed, its entries are free for other Queues.
func TestCompletionQueuesGrow(t *testing.T) {
	const most, sends, recvs = 3*reactor.DefaultCQEntries - 1, 4000, 5000
	cfg := reactor.QueueConfig{SendDepth: sends - 1, RecvDepth: recvs}
	for name, c := range map[string]struct {
		entries, want, grown int // Config.CQEntries, the number of Queues that fit, the number of resizes
	}{
		"by default": {0, most / recvs, 2 + 2}, // both completion queues grow from 8192 to 16384 entries, and then to the device's limit
		"chosen":     {most / 2, most / 2 / recvs, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLone(t, reactor.Config{CQEntries: c.entries}, func(ctx verbs.Context) verbs.Context { return fewEntries{ctx, most} })
			defer l.close(t)
			cfg.PD = l.pd
			admit := func() (*reactor.Queue, error) {
				q := must.Get(l.r.Prepare(cfg))(t)
				var err error
				l.do(t, func() { err = q.Admit() })
				if err != nil {
					must.Do(t, q.Discard())
				}
				return q, err
			}
			var all []*reactor.Queue
			for {
				q, err := admit()
				if errors.Is(err, reactor.ErrTooMany) {
					break
				}
				must.Do(t, err)
				all = append(all, q)
				init := q.InitAttr()
				if n := len(all); init.SendCQ.Capacity() < n*sends || init.RecvCQ.Capacity() < n*recvs {
					t.Fatalf("%d queues with %d sends and %d receives each were admitted, but the completion queues have only %d and %d entries",
						n, sends, recvs, init.SendCQ.Capacity(), init.RecvCQ.Capacity())
				}
			}
			deep := cfg
			deep.RecvDepth = most + 1
			deeper := must.Get(l.r.Prepare(deep))(t)
			l.do(t, func() {
				if err := deeper.Admit(); !errors.Is(err, reactor.ErrConfig) || verbs.Retryable(err) {
					t.Errorf("Admit of a queue with more receives than a completion queue can hold returned %v, want ErrConfig, which is not retryable", err)
				}
			})
			must.Do(t, deeper.Discard())
			if grown := l.r.Stats().Grown; len(all) != c.want || int(grown) != c.grown {
				t.Errorf("%d queues were admitted and completion queues grew %d times, want %d and %d", len(all), grown, c.want, c.grown)
			}
			l.do(t, func() { must.Do(t, all[0].Release(errOver)) })
			q, err := admit() // takes the entries that the first queue gave back
			must.Do(t, err)
			for _, q := range append(all[1:], q) {
				l.do(t, func() { must.Do(t, q.Release(errOver)) })
			}
		})
	}
}
