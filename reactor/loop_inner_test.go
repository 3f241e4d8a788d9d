package reactor

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: an event is due exactly for completions that follow a poll that found the end of the armed
// queue: not for those present before the arming, nor for those that one poll had no room for. The
// event settles it.
func TestWhatIsOwedAnEvent(t *testing.T) {
	const room = 4
	for _, c := range []struct {
		steps string // a: arm, e: poll nothing, s: poll some, f: poll as many as fit, v: the event
		owed  bool
	}{
		{"s", false}, {"es", false}, // not armed
		// were there before, or may have been
		{"as", false}, {"af", false}, {"aff", false}, {"afs", false}, {"affs", false},
		{"aes", true}, {"ass", true}, {"affss", true}, {"aef", true}, {"aese", true},
		{"aesv", false}, {"aev", false}, {"aevs", false}, {"aesvs", false}, {"aesvaes", true},
	} {
		s := &cqState{}
		for _, step := range c.steps {
			switch step {
			case 'a':
				s.armed = true
			case 'e':
				s.expect(0, room)
			case 's':
				s.expect(room-1, room)
			case 'f':
				s.expect(room, room)
			case 'v':
				s.disarm()
			}
		}
		if s.eventDue != c.owed {
			t.Errorf("%s: owed %t, want %t", c.steps, s.eventDue, c.owed)
		}
	}
}

// slowPolls is a device whose polls take a given time.
type slowPolls struct {
	verbs.Context
	poll time.Duration
}

func (d *slowPolls) Execute(t *verbs.IOBatch) error {
	if d.poll == 0 {
		return nil // without reading the clock, which is slow on an emulated machine
	}
	for began := time.Now(); time.Since(began) < time.Duration(1+t.Spin)*d.poll; {
	}
	return nil
}

// Rule: a spinning pass makes as many polls as fit into sliceTime, and at least one, though it
// reads the clock only once in many slices. The slice grows again when polls get faster.
func TestSlicesFitTheirTime(t *testing.T) {
	d := &slowPolls{poll: sliceTime / 8}
	r := &Reactor{ctx: d}
	r.slice, r.clockCost, r.idlePass = maxSlicePolls, clockCost(), true
	spin := func(n int) {
		t.Helper()
		for range n {
			if err := r.execute(0, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	spin(4 * (maxUntimedSlices + 1))
	if r.slice >= maxSlicePolls/2 {
		t.Errorf("polls of %v, slices of %d", d.poll, r.slice)
	}
	d.poll = 10 * sliceTime
	spin(8 * (maxUntimedSlices + 1))
	if r.slice != 1 {
		t.Errorf("polls of %v, slices of %d", d.poll, r.slice)
	}
	d.poll = 0
	// The system may preempt the process now and then.
	for i := 0; r.slice < maxSlicePolls; i++ {
		if spin(maxUntimedSlices + 1); i > 100*maxSlicePolls {
			t.Fatalf("polls of no time, slices of %d", r.slice)
		}
	}
}
