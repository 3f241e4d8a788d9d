package reactor

import (
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the turn is given up without a pass only if the completions of each queue that can get some raise an event, or
// an event is due and the last pass has left none; and if no work is left that a pass that arms does.
func TestArmed(t *testing.T) {
	const pass = 7
	armed := cqState{armed: true, armedEmpty: true}
	due := cqState{armed: true, armedEmpty: true, eventDue: true, emptyAt: pass}
	full := due
	full.emptyAt = pass - 1
	unpolled, unarmed, dead := cqState{armed: true}, cqState{emptyAt: pass}, cqState{dead: true}
	for name, x := range map[string]struct {
		outstanding  int
		sends, recvs []*cqState
		change       func(*Reactor)
		want         bool
	}{
		"all armed":                       {1, []*cqState{&armed}, []*cqState{&armed}, nil, true},
		"an event is due":                 {1, []*cqState{&due}, []*cqState{&due}, nil, true},
		"sends unarmed, none outstanding": {0, []*cqState{&unarmed}, []*cqState{&armed}, nil, true},
		"sends unarmed":                   {1, []*cqState{&armed, &unarmed}, []*cqState{&armed}, nil, false},
		"receives unarmed":                {0, []*cqState{&armed}, []*cqState{&armed, &unarmed}, nil, false},
		"not polled since":                {0, nil, []*cqState{&unpolled}, nil, false},
		"the last poll was full":          {0, nil, []*cqState{&full}, nil, false},
		"a dead queue":                    {1, []*cqState{&dead}, []*cqState{&armed, &dead}, nil, true},
		"no queue pairs":                  {0, nil, []*cqState{&unarmed}, func(r *Reactor) { r.live = 0 }, true},
		"sends held back":                 {1, []*cqState{&armed}, []*cqState{&armed}, func(r *Reactor) { r.delayed = make([]*Queue, 1) }, false},
		"a quarantined queue":             {1, []*cqState{&armed}, []*cqState{&armed}, func(r *Reactor) { r.quarantined = append(r.quarantined, nil) }, false},
	} {
		r := &Reactor{sendCQs: x.sends, recvCQs: x.recvs, outstanding: x.outstanding, live: 1}
		r.stats.Passes = pass
		if x.change != nil {
			x.change(r)
		}
		if got := (*work)(r).Armed(); got != x.want {
			t.Errorf("%s: Armed is %v, want %v", name, got, x.want)
		}
		for _, receives := range []bool{false, true} {
			r.receiver = fakeReceiver{receives: receives}
			if got, want := (receivingWork{(*work)(r)}).Armed(), x.want && !receives; got != want {
				t.Errorf("%s: Armed is %v for a device that receives on the goroutines that poll, with traffic %v", name, got, receives)
			}
		}
	}
}

// fakeReceiver is a device whose polls receive packets if receives is set. A holder must poll it and call Rest before it
// gives up the turn.
type fakeReceiver struct {
	verbs.PollReceiver
	receives bool
}

func (f fakeReceiver) Receives() bool { return f.receives }

// Rule: after a poll that could not start (EBUSY), a queue is neither empty nor dead, and the loop does not give up the
// turn before it has polled again. (The bug: the poll counted as one of an empty queue, so the loop slept over a
// completion until the recheck, or for ever.)
func TestBusyQueueKeepsTheLoopAwake(t *testing.T) {
	s := &cqState{armed: true, wc: make([]verbs.WC, 4)}
	r := &Reactor{recvCQs: []*cqState{s}, live: 1}
	if !r.take(s, &verbs.PollGroup{WC: s.wc, Errno: syscall.EBUSY}) {
		t.Error("the pass counts as idle")
	}
	if (*work)(r).Armed() || s.dead || s.emptyAt != 0 || r.stats.Polls != (Histogram{}) {
		t.Errorf("Armed is %v, the queue is dead: %v, empty in pass %d; want none of these", (*work)(r).Armed(), s.dead, s.emptyAt)
	}
	if r.take(s, &verbs.PollGroup{WC: s.wc}) || !(*work)(r).Armed() {
		t.Error("after the next poll, which found the queue empty, the loop may not sleep")
	}
}
