package reactor

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Rule: due returns each queue that was added and not removed one time, when its time has come, and those of
// earlier times first. No other queue is lost when one is removed.
func TestProbesAreDueInTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p probes
		want := map[*Queue]time.Duration{}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") || len(want) == 0 {
				q, at := &Queue{peerLimit: &peerLimit{}}, time.Duration(rapid.IntRange(1, 4).Draw(t, "at"))
				p.add(q, at)
				want[q] = at
				continue
			}
			all := make([]*Queue, 0, len(want))
			for _, m := range p.order {
				all = append(all, m.queues...)
			}
			q := rapid.SampledFrom(all).Draw(t, "removed")
			p.remove(q)
			delete(want, q)
		}
		now := time.Duration(rapid.IntRange(0, 5).Draw(t, "now"))
		last := time.Duration(0)
		for q := p.due(now); q != nil; q = p.due(now) {
			at, there := want[q]
			if !there || at > now || at < last {
				t.Fatalf("at %d, a queue of the time %d was due after one of %d (known: %v)", now, at, last, there)
			}
			last = at
			delete(want, q)
		}
		for _, at := range want {
			if at <= now {
				t.Fatalf("at %d, a queue of the time %d was not due", now, at)
			}
		}
		if slices.ContainsFunc(p.order, func(m *probeMoment) bool { return len(m.queues) == 0 }) {
			t.Fatal("a moment without queues is in the order")
		}
	})
}
