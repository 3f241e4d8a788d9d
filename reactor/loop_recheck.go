package reactor

import "time"

// DefaultRecheck is the default interval at which a reactor with queues polls its completion
// queues without an event. It bounds the delay of a completion whose event was lost. Each
// interval costs one wake-up.
const DefaultRecheck = time.Second

// An event counts as lost if it has not come within Config.Recheck/lateFor after the poll that
// found its completion. A device raises the event after it has written the completion, so a
// poll may be faster than the event. The default, 125 ms, is ten times as long as an emulated
// machine's processor was seen to be preempted.
const lateFor = 8

// If a completion event is lost, by a device, its driver or the C library, the loop would sleep
// for ever over a completion queue that it believes armed: only the event reports the completion.
// So while the reactor has a Queue, a timer runs (a driver may post while the loop sleeps
// already, and a receive may complete at any time). It wakes the loop, which runs a pass. A
// completion that arrives in an armed and empty completion queue must have an event. Waiting
// distinguishes a lost event from a slow one:
//
//	armed ──polled empty──> armedEmpty ──completion polled──> eventDue ──recheck──> eventOverdue
//	  │ event                   │ event                          │ event         event │ │ recheck:
//	  v                         v                                v                     v v lost
//	not armed, until the next arm. Stats.MissedEvents counts the lost events.
//
// A completion queue whose event is overdue is not armed again before that event counts as lost.
// Otherwise the late event could be mistaken for one of the second arming.

// armRecheck starts the timer if it does not run. It fires at whole multiples of Recheck, when
// the other reactors of an idle process wake, too. Holder only, as everything in this file.
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

// disarm records that a queue is not armed: its event came, or never will.
func (s *cqState) disarm() {
	s.armed, s.armedEmpty, s.eventDue, s.eventOverdue = false, false, false, false
}

// expect records after a poll whether an event must come. Completions that were in the queue
// before it was armed have none: only a completion after a poll that left the armed queue empty
// must have an event.
func (s *cqState) expect(found, room int) {
	switch {
	case !s.armed:
	case found > 0 && s.armedEmpty:
		s.eventDue = true
	case found < room:
		s.armedEmpty = true
	}
}
