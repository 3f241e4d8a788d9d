package reactor

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Rule: due returns each queue that was added and not removed one time, when its time has come: those of
// earlier times first, and those of one time by id. No other queue is lost when one is removed.
func TestProbesAreDueInTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p probes
		want := map[*Queue]time.Duration{}
		ids := rapid.SliceOfNDistinct(rapid.Uint32(), 50, 50, rapid.ID).Draw(t, "ids")
		for step := range rapid.IntRange(1, len(ids)).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") || len(want) == 0 {
				q, at := &Queue{id: ids[step], peerLimit: &peerLimit{}}, time.Duration(rapid.IntRange(1, 4).Draw(t, "at"))
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
		for m := p.due(now); m != nil; m = p.due(now) {
			if m.at > now || m.at <= last || !slices.IsSortedFunc(m.queues, func(a, b *Queue) int { return cmp.Compare(a.id, b.id) }) {
				t.Fatalf("at %d, the queues %v of the time %d were due after those of %d", now, m.queues, m.at, last)
			}
			last = m.at
			for _, q := range m.queues {
				if at, there := want[q]; !there || at != m.at {
					t.Fatalf("a queue of the time %d (known: %v) was due at %d", at, there, m.at)
				}
				delete(want, q)
			}
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

// Rule: a peerLimit takes at most one line of a processor's cache. (With 80 bytes, each check of an idle queue read two.)
func TestAPeerLimitFitsIntoACacheLine(t *testing.T) {
	if n := reflect.TypeFor[peerLimit]().Size(); n > 64 {
		t.Errorf("a peerLimit has %d bytes, want at most 64", n)
	}
}
