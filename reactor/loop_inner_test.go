package reactor

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: cqState.eventDue is set after two steps: a poll empties the armed completion queue, and a later poll
// finds a completion. A poll has emptied the queue if it finds fewer completions than it has room
// for. The event clears eventDue.
func TestWhatIsOwedAnEvent(t *testing.T) {
	const room = 4
	for _, c := range []struct {
		steps string // a: arm; e, s, f: a poll with room for 4 completions finds 0, 3, 4; v: the event
		owed  bool
	}{
		{"s", false}, {"es", false}, // the completion queue is not armed
		// The completions may have come before the arming, so no event is due.
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
			t.Errorf("after the steps %q eventDue is %t, want %t", c.steps, s.eventDue, c.owed)
		}
	}
}

// Rule: if none of the node's processors is allowed, the function choose returns false.
func TestNoProcessorOfTheNode(t *testing.T) {
	nodes, err := sys.Nodes()
	if err != nil || len(nodes) == 0 {
		t.Skipf("the test needs a NUMA node, but the system lists %d (error %v)", len(nodes), err)
	}
	const none = 1 << 20 // a processor that no system has
	if cpu, ok := choose(nodes[0].ID+1, []int{none, none + 1}); ok {
		t.Errorf("choose returned processor %d for node %v, want none", cpu, nodes[0])
	}
}

// slowPolls is a device with slow polls.
type slowPolls struct {
	verbs.Context
	poll time.Duration // the duration of one poll
}

func (d *slowPolls) Execute(t *verbs.IOBatch) error {
	if d.poll == 0 {
		return nil // reads no clock, because reading a clock is slow on an emulated machine
	}
	for began := time.Now(); time.Since(began) < time.Duration(1+t.Spin)*d.poll; {
	}
	return nil
}

// Rule: the number of polls in a slice (a call of Execute that repeats its polls) adapts until a
// slice takes about sliceTime. If a single poll takes longer than sliceTime, a slice has one poll. When
// polls get faster, the number grows again.
func TestSlicesFitTheirTime(t *testing.T) {
	d := &slowPolls{poll: sliceTime / 8}
	r := &Reactor{ctx: d}
	r.slice, r.clockCost, r.idlePass = maxSlicePolls, clockCost(), true
	spin := func(n int) {
		t.Helper()
		for range n {
			if err := r.execute(0, false); err != nil {
				t.Fatalf("execute returned %v, want nil", err)
			}
		}
	}
	spin(4 * (maxUntimedSlices + 1))
	if r.slice >= maxSlicePolls/2 {
		t.Errorf("with polls of %v a slice has %d polls, want fewer than %d", d.poll, r.slice, maxSlicePolls/2)
	}
	d.poll = 10 * sliceTime
	spin(8 * (maxUntimedSlices + 1))
	if r.slice != 1 {
		t.Errorf("with polls of %v a slice has %d polls, want 1", d.poll, r.slice)
	}
	d.poll = 0
	// If the system preempts the process during a slice, the slice seems slow, and the number of
	// polls is halved. So growing takes an unknown number of slices.
	for i := 0; r.slice < maxSlicePolls; i++ {
		if spin(maxUntimedSlices + 1); i > 100*maxSlicePolls {
			t.Fatalf("with polls that take no time a slice has %d polls, want %d", r.slice, maxSlicePolls)
		}
	}
}
