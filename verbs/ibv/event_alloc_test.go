//go:build linux && cgo && !portable

package ibv

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: arming, taking the event, acknowledging it and polling allocate nothing.
func TestEventsAllocateNothing(t *testing.T) {
	r := newRig(t, Config{})
	turn := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: r.qp, Head: r.writes(1), Count: 1}},
		Arms: []verbs.ArmGroup{{CQ: r.cq}}, Polls: []verbs.PollGroup{{CQ: r.cq, WC: r.wc}}}
	arm := verbs.IOBatch{Arms: turn.Arms}
	taken := 0
	per := testing.AllocsPerRun(200, func() {
		r.turn(&arm)
		r.turn(&turn)
		for {
			cq, ok, err := r.ch.GetEvent()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return
			}
			cq.AckEvents(1)
			taken++
		}
	})
	if taken == 0 {
		t.Fatal("no event came")
	}
	if per != 0 && !raceEnabled {
		t.Errorf("%v allocations for each wake-up, want none", per)
	}
}
