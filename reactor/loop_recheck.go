package reactor

import "time"

// DefaultRecheck is the default interval at which a reactor with Queues polls its completion queues
// even without an event. It bounds the delay of a completion whose event was lost. Each interval
// costs one wake-up.
const DefaultRecheck = time.Second

// If a recheck finds a polled completion whose event has not come, the event may only be slow: a
// device raises it after it has written the completion. It counts as lost if it has still not come
// Config.Recheck/lateFor later. With DefaultRecheck that is 125 ms, ten times the longest
// preemption seen on an emulated machine's processor.
const lateFor = 8

// A device, its kernel driver or the C library may lose a completion event. Without a recheck the
// loop would then sleep forever, because only the event reports the completion. So while the
// reactor has a Queue, a timer wakes the loop for a pass. (Also while no send is outstanding: a
// waiting goroutine may post one while the loop sleeps, and a receive may complete at any time.) A
// completion that arrives in an armed and empty completion queue must have an event. The states are
// fields of cqState:
//
//	armed ──polled empty──> armedEmpty ──completion polled──> eventDue ──recheck──> eventOverdue
//	  │ event                   │ event                          │ event         event │ │ recheck:
//	  v                         v                                v                     v v lost
//	not armed, until the next arm. Stats.MissedEvents counts the lost events.
//
// A completion queue whose event is overdue is not armed again until the event comes or counts as
// lost. Otherwise the late event could be taken for an event of the second arming.

// armRecheck starts the timer if it does not run. The timer fires at whole multiples of Recheck,
// like those of other reactors, so that one wake-up of an idle process serves all. Holder only, as
// everything in this file.
func (r *Reactor) armRecheck() {
	if r.recheckArmed || r.cfg.Stepped || r.cfg.Recheck < 0 {
		return
	}
	r.recheckArmed = true
	r.runAt(r.nextTick(r.cfg.Recheck), r.recheck)
}

func (r *Reactor) recheck() {
	if r.recheckArmed = false; r.live == 0 {
		return
	}
	r.stats.Rechecks++
	r.takeEvents() // an event that waits in the channel was not lost
	r.pass(false)
	late := false
	for _, s := range []*cqState{&r.sendCQ, &r.recvCQ} {
		switch {
		case s.eventOverdue:
			r.stats.MissedEvents++
			s.disarm()
		case s.eventDue:
			s.eventOverdue, late = true, true
		}
	}
	if late {
		r.recheckArmed = true
		r.After(max(r.cfg.Recheck/lateFor, 1), r.recheck)
		return
	}
	r.armRecheck()
}

// disarm records that the completion queue is not armed: its event came, or is no longer expected.
func (s *cqState) disarm() {
	s.armed, s.armedEmpty, s.eventDue, s.eventOverdue = false, false, false, false
}

// expect records, after a poll of s, whether an event must come. The argument found is how many
// completions the poll took; room is how many it could have taken. If the poll emptied an armed
// completion queue, the next completion must have an event. (A completion that was there before the
// arming has none.)
func (s *cqState) expect(found, room int) {
	switch {
	case !s.armed:
	case found > 0 && s.armedEmpty:
		s.eventDue = true
	case found < room:
		s.armedEmpty = true
	}
}
