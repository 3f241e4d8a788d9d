package reactor

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: eventDue is set when a poll finds completions after an earlier poll has emptied the armed
// completion queue. Completions from before the arming do not count, nor do the remaining ones
// after a poll that was full. The event clears eventDue.
func TestWhatIsOwedAnEvent(t *testing.T) {
	const room = 4
	for _, c := range []struct {
		steps string // a: arm, e: poll nothing, s: poll some, f: a full poll, v: the event
		owed  bool
	}{
		{"s", false}, {"es", false}, // not armed
		// completions from before the arming, or possibly from before it
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

// slowPolls is a device on which a poll takes the time poll.
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

// A slice is one call of the device that polls many times. Rule: a slice makes as many polls as fit
// into sliceTime, and at least one, although most slices are not timed. The number grows again when
// polls get faster.
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
	// The system may preempt the process now and then, which halves the slice again.
	for i := 0; r.slice < maxSlicePolls; i++ {
		if spin(maxUntimedSlices + 1); i > 100*maxSlicePolls {
			t.Fatalf("polls of no time, slices of %d", r.slice)
		}
	}
}
