//go:build !verbena_model

package turn

import (
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
)

// Rule: Wait returns the reasons for each wake-up. The key of a source with an event stays stored until
// Take returns it, or TakeOnly if it is the only one. When the poller is closed, Wait returns WakeClosed, and Err returns nil.
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
		t.Errorf("after a call of Wake, Wait returned %b, want 0", w)
	}
	if w := s.Wait(time.Now().Add(time.Millisecond)); w != WakeTimer {
		t.Errorf("after the deadline Wait returned %b, want WakeTimer", w)
	}
	ev.Signal()
	if w := s.Wait(past); w != WakeEvent|WakeTimer {
		t.Errorf("with an event and a deadline in the past Wait returned %b, want WakeEvent|WakeTimer", w)
	}
	if w := s.Wait(far); w != WakeEvent || !s.Ready() {
		t.Errorf("with a key that Take has not returned yet, Wait returned %b, want WakeEvent, and Ready must return true", w)
	}
	if k := s.Take(); !slices.Equal(k, []uint32{eventKey}) || s.Ready() {
		t.Errorf("Take returned %v, want the key of the event, and no key left", k)
	}
	if s.TakeOnly(eventKey) {
		t.Error("TakeOnly returned true without a key")
	}
	ev.Drain()
	ev.Signal()
	if s.Wait(past); s.TakeOnly(eventKey+1) || !s.Ready() {
		t.Error("TakeOnly took the key of another source")
	}
	if !s.TakeOnly(eventKey) || s.Ready() {
		t.Error("TakeOnly returned false for the only key, or left it")
	}
	ev.Drain()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if w := s.Wait(far); w&WakeClosed == 0 {
		t.Errorf("after Close of the poller Wait returned %b, want WakeClosed", w)
	}
	if err := s.Err(); err != nil {
		t.Errorf("after Close of the poller Err returned %v, want nil", err)
	}
}
