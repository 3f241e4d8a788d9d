//go:build !verbena_model

package turn

import (
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
)

// Rule: Wait returns the reasons for each wake-up. A key stays stored until Take returns it. When
// the poller is closed, Wait returns WakeClosed, and Err returns nil.
func TestPollerSleeperReasons(t *testing.T) {
	p := must.Get(sys.NewPoller())(t)
	s := NewPollerSleeper(p)
	ev := must.Get(sys.NewEvent())(t)
	defer ev.Close()
	if err := p.Attach(ev, eventKey); err != nil {
		t.Fatal(err)
	}
	drain := func() { // the portable poller reports a new source one time without an event
		if s.Ready() {
			s.Take()
			ev.Drain()
		}
	}
	far := time.Now().Add(time.Hour)
	past := time.Now().Add(-time.Second)
	s.Wait(past)
	drain()

	s.Wake()
	if w := s.Wait(far); w != 0 {
		t.Errorf("woken by the bell: got %b, want no reason", w)
	}
	if w := s.Wait(time.Now().Add(time.Millisecond)); w != WakeTimer {
		t.Errorf("woken by the deadline: got %b, want the timer", w)
	}
	ev.Signal()
	if w := s.Wait(past); w != WakeEvent|WakeTimer {
		t.Errorf("an event and a past deadline: got %b, want both", w)
	}
	if w := s.Wait(far); w != WakeEvent || !s.Ready() {
		t.Errorf("keys not taken: got %b, want the event again", w)
	}
	if k := s.Take(); !slices.Equal(k, []uint32{eventKey}) || s.Ready() {
		t.Errorf("took %v, want the event's key, once", k)
	}
	ev.Drain()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if w := s.Wait(far); w&WakeClosed == 0 {
		t.Errorf("closed: got %b", w)
	}
	if err := s.Err(); err != nil {
		t.Errorf("closed by its owner: got %v, want no error", err)
	}
}
