package reactor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: whoever gives the turn up posts what is kept: under each policy a send behind one
// that the device never ends is posted, though nobody submits, awaits or completes any more.
func TestNothingIsKeptByWhoSleeps(t *testing.T) {
	onlySoft(t, "a device cannot be kept from completing")
	for _, policy := range []reactor.Policy{reactor.PolicyEconomy, reactor.PolicyThroughput} {
		var posted atomic.Int64
		first, all := make(chan struct{}), make(chan struct{})
		a, b, h := hookedPair(t, reactor.Config{Policy: policy, FlushDelay: time.Millisecond, FlushBatch: 100, Recheck: -1}, reactor.QueueConfig{})
		h.set(func(inner verbs.Context, tn *verbs.Turn) error {
			n := 0
			for _, g := range tn.Sends {
				n += g.Count
			}
			tn.Polls, tn.Arms = nil, nil // nothing completes, and no event wakes the loop
			err := inner.Turn(tn)
			switch before := posted.Load(); posted.Add(int64(n)) {
			case before:
			case 1:
				close(first)
			case 3:
				close(all)
			}
			return err
		})
		s, p := a.write(b)
		s.Sink = called(func(reactor.Completion, error) {})
		for range 3 {
			_, err := a.q.Submit(context.Background(), s, &p, reactor.Wait)
			check(t, err)
			comes(t, "the post of the first, which stays out", first)
		}
		comes(t, "the posts of the others", all)
		h.hook.Store(nil)
		a.close(t)
		b.close(t)
	}
}
