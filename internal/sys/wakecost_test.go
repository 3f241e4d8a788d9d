package sys

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: the cost of a wake-up is measured once for each kind of source and is positive, and the
// source is left unchanged.
func TestWakeCost(t *testing.T) {
	ev := must.Get(NewEvent())(t)
	defer ev.Close()
	if !Announces(ev) || Announces(byDescriptor{ev}) {
		t.Error("an event announces itself, and one that is heard by its descriptor does not")
	}
	for name, s := range map[string]Source{"announced": ev, "by descriptor": byDescriptor{ev}} {
		first := must.Get(WakeCost(s))(t)
		second := must.Get(WakeCost(s))(t)
		t.Logf("%s: %v", name, first)
		if first <= 0 || first > time.Second || second != first {
			t.Errorf("%s: a wake-up costs %v, and asked again %v", name, first, second)
		}
	}
	if ev.ring.Load() != nil {
		t.Error("the event still calls who measured")
	}
}
