package soft

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Rule: a queue pair has one entry in the heap of timers at most, however often
// and whereto its deadline moves, and none when it is reset; each deadline is
// met in order.
func TestTimersAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &device{}
		qps := make([]*queuePair, 8)
		for i := range qps {
			qps[i] = &queuePair{dev: d}
		}
		at := map[*queuePair]time.Duration{} // the model: when each wants to be looked at
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			q := qps[rapid.IntRange(0, len(qps)-1).Draw(t, "queue pair")]
			when := time.Duration(rapid.IntRange(1, 50).Draw(t, "time, or above 40 to stop"))
			if when > 40 {
				d.timers.stop(q)
				delete(at, q)
			} else {
				q.setDeadline(when)
				if old, ok := at[q]; !ok || when < old {
					at[q] = when
				}
			}
			if len(d.timers) != len(at) {
				t.Fatalf("%d entries for %d queue pairs", len(d.timers), len(at))
			}
			for i, e := range d.timers {
				if e.q.timer != i+1 || at[e.q] != e.at {
					t.Fatalf("entry %d says place %d and time %d, want %d", i, e.q.timer, e.at, at[e.q])
				}
			}
		}
		for last := time.Duration(0); len(d.timers) > 0; {
			e := d.timers[0]
			if e.at < last {
				t.Fatalf("%d comes behind %d", e.at, last)
			}
			last = e.at
			d.timers.stop(e.q)
		}
	})
}
