package soft

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: events come out in the order in which they were pushed, whatever is withdrawn
// between, each once; what leaves the queue leaves no trace in its memory, and an empty
// queue keeps room for keptEvents at most.
func TestEventQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bell, err := sys.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		defer bell.Close()
		c := &cmChannel{bell: bell}
		ids := []*cmID{{}, {}, {}}
		type event struct{ id, status int }
		var model []event
		pushed := 0
		take := func(t *rapid.T) {
			ev, ok, err := c.GetEvent()
			if err != nil || ok != (len(model) > 0) {
				t.Fatalf("an event %v, %v; %d wait", ok, err, len(model))
			}
			if !ok {
				return
			}
			if want := model[0]; ev.Status != want.status {
				t.Fatalf("event %d, want %d", ev.Status, want.status)
			}
			ids[model[0].id].unacked.Add(-1)
			model = model[1:]
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 3, 2 * keptEvents}).Draw(t, "events") {
					e := event{rapid.IntRange(0, 2).Draw(t, "of"), pushed}
					pushed++
					c.push(cmEvent{ev: verbs.CMEvent{Status: e.status}, id: ids[e.id]})
					model = append(model, e)
				}
			},
			"take": take,
			"take most": func(t *rapid.T) {
				for len(model) > 1 {
					take(t)
				}
			},
			"withdraw": func(t *rapid.T) {
				n := rapid.IntRange(0, 2).Draw(t, "of")
				out, ok := c.withdraw(ids[n], func(e *cmEvent) bool { return e.id == ids[n] })
				if !ok {
					t.Fatal("nothing was withdrawn though all is acknowledged")
				}
				var want, got []int
				for _, e := range model {
					if e.id == n {
						want = append(want, e.status)
					}
				}
				for _, e := range out {
					got = append(got, e.ev.Status)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("withdrawn: %v, want %v", got, want)
				}
				model = slices.DeleteFunc(model, func(e event) bool { return e.id == n })
			},
			"": func(t *rapid.T) {
				if n := len(c.queue) - c.taken; n != len(model) {
					t.Fatalf("%d wait, want %d", n, len(model))
				}
				for i, e := range c.queue[:cap(c.queue)] {
					if waits := i >= c.taken && i < len(c.queue); !waits && e.id != nil {
						t.Fatalf("place %d of %d to %d keeps an event", i, c.taken, len(c.queue))
					}
				}
				if len(model) == 0 && cap(c.queue) > keptEvents {
					t.Fatalf("an empty queue has room for %d", cap(c.queue))
				}
			},
		})
	})
}
